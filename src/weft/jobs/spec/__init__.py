"""The job specification: what to run, with what, where, and what to do when something happens."""
