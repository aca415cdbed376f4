"""Code of jobs: snapshots by content, so that a job can be run again exactly and two jobs can be compared."""
