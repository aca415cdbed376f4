"""MLflow's tracking REST over the store: clients of MLflow log to Weft unchanged."""
