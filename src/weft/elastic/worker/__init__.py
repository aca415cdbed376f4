"""A worker's side of an elastic run: the loop a script sees, its group, gradients, state and healing."""
