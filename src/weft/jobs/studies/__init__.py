"""Studies of the service: searches by `weft.tune` whose trials are jobs."""
