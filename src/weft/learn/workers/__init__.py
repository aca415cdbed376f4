"""Several workers that fit one model, each on its own rows."""
