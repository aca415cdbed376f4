"""Trees, forests and boosting on histograms."""
