"""The logs of pods, read over any number of connections and first pods: every line once."""
