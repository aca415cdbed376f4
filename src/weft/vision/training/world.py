"""The workers of a training, whatever started them: one process, `weft run`, or `weft run --elastic`.

A world deals out places in the training set; each worker makes its pictures from them. The loop is the same in all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

Array = np.ndarray[Any, Any]


class TrainingWorld(Protocol):
    """Workers that train together."""

    device: torch.device

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def applied(self) -> bool:
        """Return whether this turn of the loop completed a step."""
        ...

    def prepare(self, count: int, batch: int, seed: int) -> int:
        """Take the size of the training set and of a batch; return the steps of an epoch."""
        ...

    def join(self, loss: nn.Module, **kept: Any) -> nn.Module:
        """Return the module to call for the loss; `kept` lives on through every change of the workers."""
        ...

    def epochs(self, first: int, count: int) -> Iterator[int]: ...

    def shares(self, epoch: int) -> Iterator[Array]:
        """Yield this worker's places in the training set, step by step."""
        ...

    def agree(self, flag: bool) -> bool:
        """Return rank 0's flag on every worker."""
        ...

    def close(self) -> None: ...


class SoloWorld:
    """One process, with no group."""

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.rank, self.size, self.applied = 0, 1, True
        self._count = self._batch = self._seed = 0

    def prepare(self, count: int, batch: int, seed: int) -> int:
        self._count, self._batch, self._seed = count, batch, seed
        return max(1, count // batch)

    def join(self, loss: nn.Module, **kept: Any) -> nn.Module:
        return loss

    def epochs(self, first: int, count: int) -> Iterator[int]:
        yield from range(first, count)

    def shares(self, epoch: int) -> Iterator[Array]:
        order = np.random.default_rng((self._seed, epoch)).permutation(self._count)
        batch = min(self._batch, self._count)
        for start in range(0, self._count - batch + 1, batch):
            # Each worker takes every n-th picture of the batch: shares differ by one picture at most.
            yield order[start : start + batch][self.rank :: self.size]

    def agree(self, flag: bool) -> bool:
        return flag

    def close(self) -> None:
        pass


class GroupWorld(SoloWorld):
    """A fixed group of workers: gradients are averaged by DistributedDataParallel over our backend."""

    def __init__(self) -> None:
        import weft

        context = weft.init()
        super().__init__(context.device)
        self.rank, self.size = context.rank, context.size

    def join(self, loss: nn.Module, **kept: Any) -> nn.Module:
        from torch.nn.parallel import DistributedDataParallel

        ids = [self.device.index] if self.device.type == "cuda" else None
        # Norms keep each worker's own statistics: rank 0's are kept, and nothing but gradients travels.
        return DistributedDataParallel(
            loss,
            device_ids=ids,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,
            find_unused_parameters=has_unused_parameters(loss),
        )

    def agree(self, flag: bool) -> bool:
        import torch.distributed as dist

        said = [flag]
        dist.broadcast_object_list(said)
        return said[0]

    def close(self) -> None:
        import weft

        weft.shutdown()


def has_unused_parameters(loss: nn.Module) -> bool:
    """Return whether some parameters may have no part in the loss: levels of a backbone that nothing looks at."""
    from weft.vision.models.convnext import ConvNextTiny
    from weft.vision.models.external import ExternalClassifier

    return any(isinstance(part, ConvNextTiny | ExternalClassifier) for part in loss.modules())


class PlaceDataset(torch.utils.data.Dataset[int]):
    """The data set of an elastic run: a sample is its own place."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> int:
        return place


class ElasticWorld:
    """Workers that come and go; no committed step is lost, and every picture is seen once an epoch."""

    def __init__(self) -> None:
        from weft import elastic

        self._run = elastic.join()
        self.device = self._run.device
        self._loader: Any = None

    @property
    def rank(self) -> int:
        return self._run.rank

    @property
    def size(self) -> int:
        return self._run.size

    @property
    def applied(self) -> bool:
        return self._run.applied

    def prepare(self, count: int, batch: int, seed: int) -> int:
        self._loader = self._run.loader(PlaceDataset(count), batch=min(batch, count), drop_last=True)
        return max(1, count // batch)

    def join(self, loss: nn.Module, **kept: Any) -> nn.Module:
        self._run.register(model=loss, **kept)
        return loss

    def epochs(self, first: int, count: int) -> Iterator[int]:
        return iter(self._run.epochs(count))

    def shares(self, epoch: int) -> Iterator[Array]:
        for places in self._loader:
            yield np.asarray(places)

    def agree(self, flag: bool) -> bool:
        return flag if self.size == 1 else False

    def close(self) -> None:
        pass


def join_world() -> TrainingWorld:
    """Return the world that this process was started for."""
    from weft.elastic.worker.link import inherited

    if inherited(os.environ) is not None:
        return ElasticWorld()
    from weft.context import world_from_env

    return GroupWorld() if world_from_env(os.environ).size > 1 else SoloWorld()


def total_steps(epochs: float, steps: int) -> int:
    """Return the steps of a training of a number of epochs, parts of one included."""
    return max(1, math.ceil(epochs * steps)) if epochs else 0
