"""Verbs of searches: tune, studies, study."""
