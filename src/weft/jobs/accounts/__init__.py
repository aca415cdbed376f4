"""Accounts: users with roles and passwords, tokens that are kept as digests, and secrets sealed with a key file."""
