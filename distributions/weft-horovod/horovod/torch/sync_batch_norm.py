"""Synchronized batch normalisation, under the name of its own module."""

from weft.compat.horovod.torch.sync_batch_norm import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
