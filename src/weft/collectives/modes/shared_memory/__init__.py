"""Mode `shm`: ranks of one host reduce in memory they share."""
