"""Upkeep of the service's data: jobs that are kept no longer, backups, and restoring them."""
