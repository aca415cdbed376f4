"""Boosting: losses, rounds, and the trees of a boosted model."""
