"""Decisions of large model support: what a step did, as data, and what to keep, rebuild or swap of it."""
