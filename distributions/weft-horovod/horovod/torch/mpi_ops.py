"""The operations, under the name of the module that Horovod has them in."""

from weft.compat.horovod.torch import *  # noqa: F403
from weft.compat.horovod.torch import __all__ as _names

__all__ = list(_names)
