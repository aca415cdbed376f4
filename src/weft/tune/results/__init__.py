"""Results of studies: views for tables and the web, insights, importances, exports."""
