"""The service: jobs are taken in, placed on hosts, started, watched and brought to their ends."""
