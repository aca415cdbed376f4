"""Models at work in the server: the repository, queues and batches, runners, and what they are counted by."""
