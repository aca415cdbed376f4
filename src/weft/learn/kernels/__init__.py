"""Loops over rows and columns, compiled by Numba once and kept for later processes."""
