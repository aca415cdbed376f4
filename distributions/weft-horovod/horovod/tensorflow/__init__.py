"""Horovod for TensorFlow 2: `import horovod.tensorflow as hvd`."""

from importlib import import_module
from typing import Any

from weft.compat.horovod import tensorflow as _tensorflow
from weft.compat.horovod.tensorflow import *  # noqa: F403
from weft.compat.horovod.tensorflow import __all__ as _names

__all__ = list(_names)


def __getattr__(name: str) -> Any:
    return getattr(_tensorflow, name)


# Modules that take these names from here; loaded now, or `__getattr__` would find those of Weft.
for _name in ("compression", "functions", "mpi_ops"):
    import_module(f"{__name__}.{_name}")
