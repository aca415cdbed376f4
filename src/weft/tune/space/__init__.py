"""Search spaces: what a trial may choose, its conditions and constraints, as objects and as text."""
