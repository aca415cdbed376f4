"""Horovod for Keras on TensorFlow: `import horovod.tensorflow.keras as hvd`."""

from horovod.tensorflow.keras import callbacks, elastic
from weft.compat.horovod.keras import *  # noqa: F403
from weft.compat.horovod.keras import __all__ as _names

__all__ = [*_names, "callbacks", "elastic"]
