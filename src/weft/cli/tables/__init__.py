"""Verbs about tables: learn, data."""
