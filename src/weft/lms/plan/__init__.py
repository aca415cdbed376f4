"""Decisions of large model support, pure: what a step did, and what to keep, rebuild or swap of it."""
