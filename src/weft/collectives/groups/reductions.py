"""The operations that add up: all_reduce, reduce, reduce_scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.groups.barriers import Barriers
from weft.collectives.groups.call import Call
from weft.collectives.groups.contiguous import flat, plain, put, put_back
from weft.collectives.groups.copies import CopyOperations
from weft.collectives.groups.traffic import GlooTraffic
from weft.collectives.groups.work import Work
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.modes.mode import bounds_of
from weft.collectives.reduction import Reduction, reduction_of


class WeftGroup(CopyOperations, Barriers, GlooTraffic):
    """One group of ranks under the backend "weft": reductions and copies through the hierarchy, and Gloo's traffic.

    Some operations have two names: torch 2.13 calls the second ones `..._single`, and still takes the first.
    """

    def _all_reduce(self, tensor: Tensor, reduction: Reduction) -> None:
        values = flat(tensor)
        reduction.before(values)
        if values.numel():
            self._serving(values).all_reduce(values, reduction)
        reduction.after(values, self._size)
        put_back(values, tensor)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Work:
        reduction = _reduction(opts, tensors)
        call = Call("all_reduce", tensors, reduction.name)

        def run() -> None:
            for tensor in tensors:
                if tensor.is_sparse:
                    self._gloo.allreduce([tensor], opts).wait()
                else:
                    self._all_reduce(tensor, reduction)

        return self._submit(call, run, opts, tensors)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        reduction = _reduction(opts, tensors)

        def run() -> None:
            if not self._all_reduce_many(tensors, reduction, lambda parts: self._after(parts, reduction)):
                self._all_reduce_packed(tensors, reduction)

        if any(tensor.is_sparse for tensor in tensors):
            return self.allreduce(tensors, opts)
        return self._submit(Call("all_reduce", tensors, reduction.name), run, opts, tensors)

    def allreduce_many(self, tensors: list[Tensor], opts: Any, after: Callable[[list[Tensor]], None]) -> bool:
        """Reduce tensors of one type in place, `after` on each part; return False where they must be packed.

        The caller waits: this is no operation of torch.distributed. It has seen to it that the tensors are flat,
        contiguous, on the CPU, and may be written without a thought of autograd or inference mode.
        """
        reduction = _reduction(opts, tensors[:1])
        if reduction.factor is not None:
            return False
        done: list[bool] = []
        call = Call("all_reduce", tensors, reduction.name)
        run = partial(self._hierarchy.all_reduce_together, tensors, reduction, after)
        self._submit(call, lambda: done.append(run()), opts, tensors).wait()
        return done[0]

    def _all_reduce_many(
        self, tensors: Sequence[Tensor], reduction: Reduction, after: Callable[[list[Tensor]], None]
    ) -> bool:
        first = tensors[0].dtype if tensors else None
        if reduction.factor is not None or any(each.dtype != first or not each.is_cpu for each in tensors):
            return False
        values = [flat(tensor) for tensor in tensors]
        if not self._hierarchy.all_reduce_together(values, reduction, after):
            return False
        for value, tensor in zip(values, tensors, strict=True):
            put_back(value, tensor)
        return True

    def _all_reduce_packed(self, tensors: Sequence[Tensor], reduction: Reduction) -> None:
        """Reduce tensors in one message for each type and device."""
        kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for alike in kinds.values():
            if len(alike) == 1:
                self._all_reduce(alike[0], reduction)
                continue
            together = torch.cat([plain(tensor).reshape(-1) for tensor in alike])
            self._all_reduce(together, reduction)
            parts = torch.split(together, [tensor.numel() for tensor in alike])
            for part, tensor in zip(parts, alike, strict=True):
                put(part, tensor)

    def _after(self, parts: Sequence[Tensor], reduction: Reduction) -> None:
        for part in parts:
            reduction.after(part, self._size)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Work:
        reduction = _reduction(opts, tensors)

        def run() -> None:
            for tensor in tensors:
                copy = tensor.detach().clone()
                self._all_reduce(copy, reduction)
                if self._rank == opts.rootRank:
                    put(copy, tensor)

        call = Call("reduce", tensors, f"{reduction.name} to {opts.rootRank}")
        return self._submit(call, run, opts, tensors)

    def _reduce_scatter(
        self, output: Tensor, inputs: Tensor, counts: Sequence[int], reduction: Reduction
    ) -> None:
        """`inputs` holds one part for each rank, one after the other; ours, reduced, goes to `output`."""
        values, bounds = plain(inputs).flatten(), bounds_of(counts)
        serving = self._serving(values) if values.numel() else None
        if isinstance(serving, Hierarchy) and reduction.factor is None:
            part = values.new_empty(counts[self._rank])
            serving.reduce_scatter_into(values, bounds, reduction, part)
        else:
            values = values.clone()
            reduction.before(values)
            if serving is not None:
                serving.reduce_scatter(values, bounds, reduction)
            part = values[slice(*bounds[self._rank])]
        reduction.after(part, self._size)
        put(part, output)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        reduction = _reduction(opts, outputs)
        for output, parts in zip(outputs, inputs, strict=True):
            self._check_parts("reduce_scatter", parts, output, ours=parts[self._rank : self._rank + 1])

        def run() -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                flat = torch.cat([part.detach().reshape(-1) for part in parts])
                self._reduce_scatter(output, flat, [part.numel() for part in parts], reduction)

        call = Call("reduce_scatter", [part for parts in inputs for part in parts], reduction.name)
        return self._submit(call, run, opts, outputs)

    def reduce_scatter_single(self, output: Tensor, inputs: Tensor, opts: Any = None) -> Work:
        return self.reduce_scatter_single_coalesced([output], [inputs], opts)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None
    ) -> Work:
        reduction = _reduction(opts, outputs)
        for output, values in zip(outputs, inputs, strict=True):
            self._check_whole("reduce_scatter", values, output)

        def run() -> None:
            for output, values in zip(outputs, inputs, strict=True):
                self._reduce_scatter(output, values, [output.numel()] * self._size, reduction)

        return self._submit(Call("reduce_scatter", inputs, reduction.name), run, opts, outputs)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced


def _reduction(opts: Any, tensors: Sequence[Tensor]) -> Reduction:
    reduction = reduction_of(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
    for tensor in tensors:
        reduction.check(tensor)
    return reduction
