"""Searchers: what to try next, from points in a list to Optuna's samplers."""
