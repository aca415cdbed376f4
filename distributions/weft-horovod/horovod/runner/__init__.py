"""Running: `horovod.run` and `horovodrun`."""

from weft.compat.horovod.launcher.arguments import HorovodArguments as _HorovodArgs
from weft.compat.horovod.launcher.function import run

__all__ = ["_HorovodArgs", "run"]
