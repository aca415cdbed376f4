"""Private names of torch that Horovod's doors need; they hold for torch 2.11, 2.12 and 2.13."""

from __future__ import annotations

from torch.nn.modules.batchnorm import _BatchNorm as BatchNormBase  # for inputs of any number of dimensions

__all__ = ["BatchNormBase"]
