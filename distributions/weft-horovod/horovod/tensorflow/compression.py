"""Compression of tensors, under the name of its own module."""

from horovod.tensorflow import Compression

__all__ = ["Compression"]
