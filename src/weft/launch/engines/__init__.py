"""Engines: what starts the workers of a plan, on this machine, over ssh, by mpirun or in Slurm."""
