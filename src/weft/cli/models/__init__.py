"""Verbs about models: export, model, serve, client."""
