"""Groups of ranks, as torch calls them: how they meet, how their operations are queued, and how they break."""
