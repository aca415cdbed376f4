"""Sources of an export: torch modules and fitted estimators, their samples and their open axes."""
