"""Linear models on an accelerator, by torch: dense and sparse tables that are there, and those that stream to it."""
