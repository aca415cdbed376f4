"""Blocks of a model that are called again in the backward pass, as checkpointing by hand does."""
