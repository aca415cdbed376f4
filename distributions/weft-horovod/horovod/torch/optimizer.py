"""The distributed optimizer, under the name of its own module."""

from weft.compat.horovod.torch.adasum_optimizer import AdasumOptimizer as _DistributedAdasumOptimizer
from weft.compat.horovod.torch.optimizer import DistributedOptimizer
from weft.compat.horovod.torch.reducing_optimizer import ReducingOptimizer as _DistributedOptimizer

__all__ = ["DistributedOptimizer", "_DistributedAdasumOptimizer", "_DistributedOptimizer"]
