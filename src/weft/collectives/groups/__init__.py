"""What torch calls: groups of ranks, how they meet, how their operations are queued, and how they break."""
