"""Metrics: points that training reports, packed into chunks, with levels that make large charts quick."""
