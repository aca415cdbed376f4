"""The place of this process, from the variables of its launcher."""

from weft.compat.horovod.launcher.places import LOG_LEVEL_STR, get_env_rank_and_size, is_exportable

__all__ = ["LOG_LEVEL_STR", "get_env_rank_and_size", "is_exportable"]
