"""The kubernetes engine: a plan as objects of a cluster, applied and followed from outside."""
