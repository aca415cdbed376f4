"""Reports of jobs: their metrics, logs and use of the machines, read from run directories into the store."""
