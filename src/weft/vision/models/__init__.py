"""Models in plain torch: backbones, classifiers, an anchor-free detector with masks, features for anomalies.

A model takes pictures as they are, pixels of 0..255 in RGB, and scales them itself, so that what is exported holds its
own pre-processing.
"""
