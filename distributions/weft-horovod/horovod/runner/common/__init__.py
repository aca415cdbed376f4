"""Names that launchers share."""
