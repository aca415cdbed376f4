"""Membership of an elastic run, pure: views, the policy of the next one, the council that agrees on it."""
