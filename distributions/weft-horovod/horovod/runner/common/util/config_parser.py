"""The variables that flags of `horovodrun` stand for."""

from weft.compat.horovod.launcher.variables import NAMES, set_env_from_args

globals().update({name: name for name in NAMES})
LOG_LEVELS = ["TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"]

__all__ = ["LOG_LEVELS", "set_env_from_args", *NAMES]
