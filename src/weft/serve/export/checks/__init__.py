"""Checks of an exported file against the model it was made from."""
