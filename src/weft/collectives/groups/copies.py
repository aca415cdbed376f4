"""The operations that only copy: broadcast, all_gather. They take values as bytes, of whatever type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft.collectives.groups.call import Call
from weft.collectives.groups.contiguous import as_bytes, flat, plain, put_back, put_parts
from weft.collectives.groups.group import Group
from weft.collectives.groups.work import Work
from weft.collectives.modes.mode import bounds_of


class CopyOperations(Group):
    """The copying collectives of a group, carried out by its hierarchy."""

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work:
        root = opts.rootRank

        def run() -> None:
            for tensor in tensors:
                values = flat(tensor)
                if values.numel():
                    self._serving(values).broadcast(as_bytes(values), root)
                put_back(values, tensor)

        return self._submit(Call("broadcast", tensors, f"from {root}"), run, opts, tensors)

    def _gather_bytes(self, values: Tensor, everything: Tensor, counts: Sequence[int]) -> None:
        """Give every rank the values of all ranks, one after the other; rank i has `counts[i]` bytes."""
        bounds = bounds_of(counts)
        first, last = bounds[self._rank]
        everything[first:last].copy_(values)
        if everything.numel():
            self._serving(everything).all_gather(everything, bounds)

    def _all_gather(self, values: Tensor, outputs: Sequence[Tensor]) -> None:
        """Gather the values of all ranks into as many tensors, or into one that holds them all."""
        counts = [output.nbytes for output in outputs]
        if len(counts) != self._size:
            counts = [values.nbytes] * self._size
        if len(outputs) == 1 and outputs[0].is_cpu and outputs[0].is_contiguous():
            # Straight into the tensor that holds them all: a copy of it takes longer than some networks.
            self._gather_bytes(as_bytes(flat(values)), as_bytes(plain(outputs[0]).view(-1)), counts)
            return
        everything = torch.empty(sum(counts), dtype=torch.uint8, device=values.device)
        self._gather_bytes(as_bytes(flat(values)), everything, counts)
        put_parts(everything, outputs)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        gives = [part for into in outputs for part in into]
        for into, values in zip(outputs, inputs, strict=True):
            self._check_parts("all_gather", into, values, ours=into[self._rank : self._rank + 1])

        def run() -> None:
            for into, values in zip(outputs, inputs, strict=True):
                self._all_gather(values, into)

        return self._submit(Call("all_gather", gives), run, opts, gives)

    def all_gather_single(self, output: Tensor, values: Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [values], opts)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        for output, values in zip(outputs, inputs, strict=True):
            self._check_whole("all_gather", output, values)

        def run() -> None:
            for output, values in zip(outputs, inputs, strict=True):
                self._all_gather(values, [output])

        return self._submit(Call("all_gather", inputs), run, opts, outputs)

    def allgather_coalesced(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        """`outputs[i][j]` takes the j-th tensor of rank i."""
        gives = [part for into in outputs for part in into]
        columns = [list(column) for column in zip(*outputs, strict=True)]
        for values, into in zip(inputs, columns, strict=True):
            self._check_parts("all_gather", into, values, ours=into[self._rank : self._rank + 1])

        def run() -> None:
            for values, into in zip(inputs, columns, strict=True):
                self._all_gather(values, into)

        return self._submit(Call("all_gather", inputs), run, opts, gives)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
