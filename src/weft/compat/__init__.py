"""Doors for people who come from elsewhere."""
