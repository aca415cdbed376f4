"""Solvers of linear models: the problems they minimise, the losses, and which solver suits which table."""
