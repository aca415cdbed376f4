"""Handlers of requests, one file for each kind of thing; `weft.jobs.api.operations` says which path each answers."""
