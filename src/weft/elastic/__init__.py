"""Training that outlives its machines: agents agree on views, workers repair themselves in process."""
