"""Verbs of vision: data sets of pictures, training, evaluation, deployment."""
