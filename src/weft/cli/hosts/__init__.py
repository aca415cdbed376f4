"""Verbs about hosts: check, topology, rankfile."""
