"""Horovod for Keras 3 on its backends: `import horovod.keras as hvd`."""

from horovod.keras import callbacks, elastic
from weft.compat.horovod.keras import *  # noqa: F403
from weft.compat.horovod.keras import __all__ as _names

__all__ = [*_names, "callbacks", "elastic"]
