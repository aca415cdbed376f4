"""Broadcasts of variables and objects, under the name of their own module."""

from horovod.tensorflow import (
    allgather_object,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)

__all__ = ["allgather_object", "broadcast_object", "broadcast_object_fn", "broadcast_variables"]
