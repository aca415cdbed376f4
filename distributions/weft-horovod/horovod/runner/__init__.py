"""Running: `horovod.run` and `horovodrun`."""

from weft.compat.horovod.launcher.function import run

__all__ = ["run"]
