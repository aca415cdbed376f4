"""Elastic runs in pods: the launcher of the first pod, and what the others keep for the pod that takes its place."""
