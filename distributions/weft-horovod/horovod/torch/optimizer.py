"""The distributed optimizer, under the name of its own module."""

from weft.compat.horovod.torch.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
