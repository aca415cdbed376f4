"""The samples of an elastic run: which a step consumes, who computes which of them, and where they are read from."""
