"""What an elastic run leaves behind: the ledger of samples and the timeline of changes, checked and shown."""
