"""Mode `ring`: peers of a dimension pass bytes around over TCP."""
