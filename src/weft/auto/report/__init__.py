"""The report of a run: one HTML file with its pictures inside, and the same on paper."""
