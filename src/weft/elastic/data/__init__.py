"""Which samples each step consumes, who computes which of them, and where they are read from."""
