"""Process sets."""

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world

add_process_set = world.add_process_set
remove_process_set = world.remove_process_set
get_process_set_ids_and_ranks = world.sets

__all__ = [
    "ProcessSet",
    "add_process_set",
    "get_process_set_ids_and_ranks",
    "global_process_set",
    "remove_process_set",
]
