"""Who takes part in an elastic run, pure: views, the council that agrees on the next one, the policy behind it."""
