"""Buffers of a model, as of batch normalisation: the same on all members, whoever computed what.

DDP takes those of its first rank. Here they are those of whoever computed the first micro-batch of a step: every
micro-batch begins with the buffers of the last commit, so what it leaves does not depend on what else was computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn


class Buffers:
    """All buffers of some models."""

    def __init__(self, modules: Iterable[nn.Module] = ()) -> None:
        self._live = [buffer for module in modules for buffer in module.buffers()]
        self.kept = self._copies()  # as of the last commit
        self._next: list[Tensor] | None = None  # and as they will be, where we computed the first micro-batch

    def _copies(self) -> list[Tensor]:
        return [buffer.clone() for buffer in self._live]

    def restore(self) -> None:
        """Begin a micro-batch."""
        with torch.no_grad():
            for buffer, kept in zip(self._live, self.kept, strict=True):
                buffer.copy_(kept)

    def first_computed(self) -> None:
        """Note that this worker computed the first micro-batch of the step, whose buffers all take over."""
        self._next = self._copies()

    def first_skipped(self) -> None:
        """Note that this worker left out the first micro-batch of the step, which changes no buffers."""
        self._next = [kept.clone() for kept in self.kept]

    def to_sum(self) -> dict[torch.dtype, Tensor]:
        """Return what to sum over members, one tensor for each type: zeros but from the member whose buffers count."""
        flat: dict[torch.dtype, Tensor] = {}
        for kind in dict.fromkeys(buffer.dtype for buffer in self._live):
            ours = self._next if self._next is not None else self._live
            whole = torch.cat([buffer.flatten() for buffer in ours if buffer.dtype is kind])
            whole = whole.to(torch.uint8) if kind is torch.bool else whole
            flat[kind] = whole if self._next is not None else whole.zero_()
        return flat

    def take(self, flat: Mapping[torch.dtype, Tensor]) -> None:
        """Put the sums in place."""
        with torch.no_grad():
            for kind, whole in flat.items():
                start = 0
                for buffer in self._live:
                    if buffer.dtype is kind:
                        stop = start + buffer.numel()
                        buffer.copy_(whole[start:stop].view_as(buffer))
                        start = stop

    def commit(self) -> None:
        self.kept = self._copies()

    def forget_step(self) -> None:
        self._next = None

    def heal(self, kept: Sequence[Tensor]) -> None:
        """Take over those of another member's last commit."""
        self.kept = [there.to(live.device).clone() for there, live in zip(kept, self._live, strict=True)]
        self.restore()
