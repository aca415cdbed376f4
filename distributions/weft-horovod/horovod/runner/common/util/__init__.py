"""Small modules of launchers."""
