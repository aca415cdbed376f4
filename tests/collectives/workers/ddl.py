"""A script written for DDL's Python API; its name is all that has changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import weft.compat.ddl as ddl
from weft.errors import UsageError

with pytest.raises(UsageError, match="3 accelerators x 2 hosts = 6 but there are 2 workers"):
    ddl.init("-mode b:3x2")
ddl.init()  # with DDL_OPTIONS
settings: Any = getattr(dist.group.WORLD, "settings", None)
assert (str(settings.mode), settings.watching.report) == ("ring:2x1x1x1", 10)
with pytest.raises(UsageError, match="already initialized"):
    ddl.init()
assert (ddl.size(), ddl.num_hosts()) == (2, 1)
assert ddl.rank() == ddl.local_rank() == dist.get_rank()

assert ddl.bcast(np.array([ddl.rank() + 5.0])).tolist() == [5.0]
grads: list[Any] = [torch.full((2,), float(ddl.rank())), None, np.ones(3)]
reduced: list[Any] = ddl.allreduce_n(grads)
first, nothing, second = reduced
assert (first.tolist(), nothing, second.tolist()) == ([0.5, 0.5], None, [1.0] * 3)
reduced = ddl.allreduce_n(grads[2:], average=False)
assert reduced[0].tolist() == [2.0] * 3
assert ddl.grads_reduce([(np.array([ddl.rank() * 2.0]), "w"), (None, "b")])[0] == (np.array([1.0]), "w")
dist.destroy_process_group()
print("as it should be\n", end="", flush=True)
