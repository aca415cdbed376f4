"""Hosts that are not there: published constants of accelerators and networks, and models by their shapes; pure."""
