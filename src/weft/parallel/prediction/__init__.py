"""Prediction of one way to run a step: its time, what it sends and what it holds; pure, and without torch."""
