"""The launcher's side of a run: it drives the agents, shows what workers print, and tells how the run ended."""
