"""Schedulers: pure functions from the state of a study and the free slots to actions."""
