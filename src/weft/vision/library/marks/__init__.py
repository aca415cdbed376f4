"""Notes on a data set besides files and their labels: settings, and actions in films."""
