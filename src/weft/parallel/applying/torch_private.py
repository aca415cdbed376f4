"""Private names of torch that applying a plan needs; they hold for torch 2.11, 2.12 and 2.13.

Recording has a file of its own, because FSDP takes half a second to load.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter as ReduceScatter

# torch 2.13 gave them new names, and warns of the old ones.
reduce_scatter: Any = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
all_gather: Any = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)


def gather_in_background(model: nn.Module) -> None:
    """Let a sharded model gather by collectives that do not block, which on CPUs is what makes prefetching one."""
    module: Any = model
    module._set_unshard_async_op(True)
