"""Verbs of the jobs service: starting it, submitting to it, looking at jobs, hosts and users."""
