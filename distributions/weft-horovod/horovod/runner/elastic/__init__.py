"""Names of elastic launchers."""
