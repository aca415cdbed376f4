"""Elastic states of TensorFlow, under the name of their own module."""

from weft.compat.horovod.tensorflow.elastic import *  # noqa: F403
from weft.compat.horovod.tensorflow.elastic import __all__ as _names

__all__ = list(_names)
