"""Data of jobs: named data sets, S3, models with their origin, and deployments."""
