"""Names that all frameworks share."""
