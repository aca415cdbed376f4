"""A member's replica of the training: what it holds, sums and hands on."""
