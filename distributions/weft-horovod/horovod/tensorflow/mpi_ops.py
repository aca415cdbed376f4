"""Operations and the world, under the name that Horovod has them under."""

from weft.compat.horovod.tensorflow import *  # noqa: F403
from weft.compat.horovod.tensorflow import __all__ as _names

__all__ = list(_names)
