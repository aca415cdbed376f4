"""A worker's side of an elastic run: the loop a script sees, its link to the agent, its group and healing."""
