"""Pictures that a library makes from those it has: changed ones, and frames of films."""
