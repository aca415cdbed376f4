"""The algorithms, each for one dimension, behind the seam in `mode.py`; and the lighter wires."""
