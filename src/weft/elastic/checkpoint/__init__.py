"""Checkpoints of an elastic run: when one is due, who writes what, and how it lies on disk."""
