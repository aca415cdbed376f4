"""Seeing and trusting it: reports, traces, verification. Nothing of it runs unless it is asked for."""
