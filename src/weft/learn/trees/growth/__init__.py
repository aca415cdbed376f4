"""Growing one tree on histograms: bins, packed sums, splits, levels."""
