"""The search within a time budget: what is tried next, for how long, and how models are blended."""
