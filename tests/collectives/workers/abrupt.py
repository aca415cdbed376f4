"""A script that just ends, as many do: nothing is destroyed, and an operation of rank 0 is still under way."""

from __future__ import annotations

import atexit
import os
import sys

import torch
import torch.distributed as dist

import weft


def all_is_left() -> None:
    """The last thing to be done before the interpreter is taken down: threads that still run then may end it badly."""
    if dist.is_initialized():
        sys.stderr.write("groups are left to the interpreter's end\n")
        sys.stderr.flush()
        os._exit(3)


atexit.register(all_is_left)
if sys.argv[1] == "init":
    weft.init()
else:
    dist.init_process_group("weft")
other = dist.new_group(backend="gloo")
values = torch.ones(10)
dist.all_reduce(values)
dist.all_reduce(values, group=other)
if weft.rank() == 0:
    dist.all_reduce(values, async_op=True)
