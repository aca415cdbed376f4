"""The agent: the short-lived process on each host that surveys it, and starts, watches and ends workers."""
