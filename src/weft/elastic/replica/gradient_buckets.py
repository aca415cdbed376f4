"""Buckets of gradients: parameters whose gradients are reduced together, with the sums of each backward pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

FIRST_BUCKET_BYTES = 1 << 20  # small: it sets off while most of the backward pass is still to come
BUCKET_BYTES = 25 << 20


@dataclass
class GradientSlot:
    """One parameter's place in its bucket."""

    parameter: nn.Parameter
    index: int  # among all parameters
    start: int
    stop: int
    touched: defaultdict[int, set[int]] = field(default_factory=lambda: defaultdict(set))  # rows, by pass
    before: Tensor | None = None  # `.grad` as it was when the pass that runs came to this parameter


@dataclass(frozen=True)
class PassSums:
    """The sums of one backward pass over the parameters of a bucket."""

    own: Tensor  # our share of the step, in one row or in one for each micro-batch
    total: Tensor  # everyone's


@dataclass
class GradientBucket:
    """A bucket: parameters whose gradients are reduced together."""

    slots: list[GradientSlot]
    rows: int
    sums: list[PassSums] = field(default_factory=list)  # by pass
    arrived: int = 0  # in the pass that runs
    works: list[Any] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        return self.arrived == len(self.slots)

    def of_pass(self, number: int) -> PassSums:
        """Return the sums of a pass; most scripts have one only."""
        while len(self.sums) <= number:
            like = self.slots[0].parameter
            own = torch.zeros(self.rows, self.slots[-1].stop, dtype=like.dtype, device=like.device)
            self.sums.append(PassSums(own, torch.empty_like(own)))
        return self.sums[number]


def make_buckets(
    parameters: Sequence[nn.Parameter], bucket_bytes: int, rows: int
) -> Iterable[GradientBucket]:
    """Parameters from the last to the first, as the backward pass comes to them; one type and device in each bucket."""
    kinds: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    for index in reversed(range(len(parameters))):
        if parameters[index].requires_grad:
            kinds.setdefault((parameters[index].dtype, parameters[index].device), []).append(index)
    limit = min(FIRST_BUCKET_BYTES, bucket_bytes)
    for indices in kinds.values():
        members: list[int] = []
        size = 0
        for index in indices:
            members.append(index)
            size += parameters[index].nbytes
            if size >= limit:
                yield _bucket(parameters, members, rows)
                members, size, limit = [], 0, bucket_bytes
        if members:
            yield _bucket(parameters, members, rows)


def _bucket(parameters: Sequence[nn.Parameter], indices: Sequence[int], rows: int) -> GradientBucket:
    slots, start = [], 0
    for index in indices:
        stop = start + parameters[index].numel()
        slots.append(GradientSlot(parameters[index], index, start, stop))
        start = stop
    return GradientBucket(slots, rows)
