"""Elastic states and callbacks, under the name of their own module."""

from weft.compat.horovod.keras.elastic import *  # noqa: F403
from weft.compat.horovod.keras.elastic import __all__ as _names

__all__ = list(_names)
