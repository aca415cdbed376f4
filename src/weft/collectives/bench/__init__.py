"""`weft bench`: what is measured, by whom, and how it is shown."""
