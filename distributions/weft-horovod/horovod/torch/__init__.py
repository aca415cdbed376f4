"""Horovod for torch: `import horovod.torch as hvd`."""

from horovod.torch import elastic
from horovod.torch.optimizer import _DistributedAdasumOptimizer, _DistributedOptimizer
from weft.compat.horovod.torch import *  # noqa: F403
from weft.compat.horovod.torch import __all__ as _names

__all__ = [*_names, "_DistributedAdasumOptimizer", "_DistributedOptimizer", "elastic"]
