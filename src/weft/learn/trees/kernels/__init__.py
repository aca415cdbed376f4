"""Compiled loops of trees and boosting: histograms, splits, levels, leaves."""
