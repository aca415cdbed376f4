"""Verbs that train, and that look into what was trained: run, bench, scale, ledger, timeline."""
