"""The objects of a run, decided: names, checks, pods, manifests and their text; pure."""
