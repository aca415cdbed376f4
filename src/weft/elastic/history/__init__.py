"""The record of an elastic run: the ledger of samples and the timeline of changes, checked and shown."""
