"""The torch backend "weft": what torch.distributed calls, turned into jobs for a hierarchy.

On torch 2.11 to 2.13 a backend in Python must be a whole ProcessGroup. The names of some methods changed in 2.13, so
both spellings are there. What does not profit from the machine's shape (gather, scatter, all-to-all, point to point) is
left to a Gloo group of the same members.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.meeting import meet
from weft.collectives.mode import even_bounds
from weft.collectives.reduction import Reduction, reduction_of
from weft.collectives.staging import flat_on_cpu
from weft.collectives.work import Job, Queue, Work
from weft.errors import CollectiveError


class WeftGroup(dist.ProcessGroup):
    """One group of ranks."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._timeout = timeout
        self._name = self._description = ""
        self._doing = "the meeting of the group"
        self._broken: BaseException | None = None
        self._queue = Queue("weft-collectives")
        meeting = meet(dist.PrefixStore("weft", store), rank, size, timeout, lambda: self._doing)
        self._members = meeting.members
        self._hierarchy = meeting.hierarchy()
        self._gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout)

    # -- who we are -------------------------------------------------------------------------------

    def getBackendName(self) -> str:  # noqa: N802 (torch's spelling)
        return "weft"

    def getRank(self) -> int:  # noqa: N802
        return self._rank

    def getSize(self) -> int:  # noqa: N802
        return self._size

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank

    def setGroupName(self, name: str) -> None:  # noqa: N802
        self._name = name

    def getGroupName(self) -> str:  # noqa: N802
        return self._name

    def setGroupDesc(self, description: str) -> None:  # noqa: N802
        self._description = description

    def getGroupDesc(self) -> str:  # noqa: N802
        return self._description

    @property
    def group_name(self) -> str:
        return self._name

    # -- jobs -------------------------------------------------------------------------------------

    def _submit(
        self, name: str, run: Callable[[], Any], tensors: Sequence[Tensor], options: Any, gives: list[Tensor]
    ) -> Work:
        """Queue an operation. `tensors` are what it works on, `gives` what its future holds."""
        doing = f"{name}({', '.join(map(_describe, tensors[:4]))}{', ...' if len(tensors) > 4 else ''})"
        ready = _ready(tensors)

        def guarded() -> Any:
            if self._broken is not None:
                raise CollectiveError(
                    f"the group must be whole for {doing}, got one that broke: {self._broken}"
                )
            self._doing = doing
            if ready is not None:
                ready.synchronize()
            try:
                return run()
            except CollectiveError as error:
                self._break(error)
                raise
            except RuntimeError as error:  # Gloo's
                wrapped = CollectiveError(f"{doing} failed: {error}")
                self._break(wrapped)
                raise wrapped from error

        job = Job(guarded, gives)
        self._queue.put(job, soon=bool(getattr(options, "asyncOp", True)))
        return Work(job, self._queue)

    def _break(self, error: BaseException) -> None:
        """Let the others know at once: they would wait for us in vain."""
        self._broken = error
        self._hierarchy.close()

    # -- reductions -------------------------------------------------------------------------------

    def _all_reduce(self, tensor: Tensor, reduction: Reduction) -> None:
        with flat_on_cpu(tensor) as values:
            reduction.before(values)
            if values.numel():
                self._hierarchy.all_reduce(values, reduction)
            reduction.after(values, self._size)

    def allreduce(self, tensors: list[Tensor], options: Any = None) -> Work:
        reduction = reduction_of(options.reduceOp if options is not None else dist.ReduceOp.SUM)

        def run() -> None:
            for tensor in tensors:
                self._all_reduce(tensor, reduction)

        return self._submit("all_reduce", run, tensors, options, tensors)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: list[Tensor], options: Any) -> Work:
        reduction = reduction_of(options.reduceOp)

        def run() -> None:
            for tensor in tensors:
                copy = tensor.clone()
                self._all_reduce(copy, reduction)
                if self._rank == options.rootRank:
                    tensor.copy_(copy)

        return self._submit("reduce", run, tensors, options, tensors)

    def _reduce_scatter(
        self, output: Tensor, inputs: Tensor, counts: Sequence[int], reduction: Reduction
    ) -> None:
        """`inputs` holds one part for each rank, one after the other; ours, reduced, goes to `output`."""
        values = inputs.reshape(-1).to("cpu", copy=True)
        reduction.before(values)
        ends = [sum(counts[:part]) for part in range(len(counts) + 1)]
        bounds = list(pairwise(ends))
        first, last = bounds[self._rank]
        local = self._hierarchy.local
        if values.numel():
            if local is not None and not self._hierarchy.across:
                local.reduce_scatter(values, bounds, reduction)
            else:
                self._hierarchy.all_reduce(values, reduction)
        part = values[first:last]
        reduction.after(part, self._size)
        output.copy_(part.view(output.shape))

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], options: Any) -> Work:
        reduction = reduction_of(options.reduceOp)

        def run() -> None:
            for output, parts in zip(outputs, inputs, strict=True):
                flat = torch.cat([part.reshape(-1) for part in parts])
                self._reduce_scatter(output, flat, [part.numel() for part in parts], reduction)

        return self._submit("reduce_scatter", run, outputs, options, outputs)

    def reduce_scatter_single(self, output: Tensor, inputs: Tensor, options: Any) -> Work:
        return self.reduce_scatter_single_coalesced([output], [inputs], options)

    def reduce_scatter_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], options: Any = None
    ) -> Work:
        reduction = reduction_of(options.reduceOp if options is not None else dist.ReduceOp.SUM)

        def run() -> None:
            for output, values in zip(outputs, inputs, strict=True):
                self._reduce_scatter(output, values, [output.numel()] * self._size, reduction)

        return self._submit("reduce_scatter", run, outputs, options, outputs)

    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # -- copies -----------------------------------------------------------------------------------

    def broadcast(self, tensors: list[Tensor], options: Any) -> Work:
        root = options.rootRank

        def run() -> None:
            for tensor in tensors:
                with flat_on_cpu(tensor) as values:
                    if not values.numel():
                        continue
                    if self._hierarchy.local is not None and not self._hierarchy.across:
                        self._hierarchy.local.broadcast(values, root)
                    elif self._size > 1:
                        self._gloo.broadcast(values, root).wait()

        return self._submit("broadcast", run, tensors, options, tensors)

    def _all_gather(self, values: Tensor) -> Tensor:
        """Everyone's values, one after the other; all have equally many."""
        count = values.numel()
        everything = torch.empty(self._size * count, dtype=values.dtype)
        first = self._rank * count
        everything[first : first + count].copy_(values.reshape(-1))
        if not count or self._size == 1:
            return everything
        if self._hierarchy.local is not None and not self._hierarchy.across:
            self._hierarchy.local.all_gather(everything, even_bounds(everything.numel(), self._size))
        else:
            parts = list(torch.split(everything, count))
            self._gloo.allgather([parts], [parts[self._rank].clone()]).wait()
        return everything

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any = None) -> Work:
        def run() -> None:
            for into, values in zip(outputs, inputs, strict=True):
                if len({output.numel() for output in into}) > 1:
                    self._gloo_wait("allgather", [into], [values])  # parts of different sizes
                    continue
                everything = self._all_gather(values)
                for output, part in zip(into, torch.split(everything, max(1, values.numel())), strict=False):
                    output.copy_(part.view(output.shape))

        return self._submit("all_gather", run, inputs, options, [part for into in outputs for part in into])

    def all_gather_single(self, output: Tensor, values: Tensor, options: Any = None) -> Work:
        return self.all_gather_single_coalesced([output], [values], options)

    def all_gather_single_coalesced(
        self, outputs: list[Tensor], inputs: list[Tensor], options: Any = None
    ) -> Work:
        def run() -> None:
            for output, values in zip(outputs, inputs, strict=True):
                output.copy_(self._all_gather(values).view(output.shape))

        return self._submit("all_gather", run, inputs, options, outputs)

    def allgather_coalesced(
        self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any = None
    ) -> Work:
        def run() -> None:
            for index, values in enumerate(inputs):
                everything = self._all_gather(values).view(self._size, -1)
                for peer in range(self._size):
                    outputs[peer][index].copy_(everything[peer].view(outputs[peer][index].shape))

        return self._submit("all_gather", run, inputs, options, [part for into in outputs for part in into])

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def barrier(self, options: Any = None) -> Work:
        def run() -> None:
            local = self._hierarchy.local
            if local is not None and not self._hierarchy.across:
                local.barrier()
            elif self._size > 1:
                self._gloo.barrier().wait()

        return self._submit("barrier", run, [], options, [])

    # -- left to Gloo -----------------------------------------------------------------------------

    def _gloo_wait(self, name: str, *args: Any) -> None:
        getattr(self._gloo, name)(*args).wait()

    def _by_gloo(
        self,
        name: str,
        method: str,
        args: tuple[Any, ...],
        touched: list[Tensor],
        options: Any,
        gives: list[Tensor],
    ) -> Work:
        return self._submit(name, lambda: self._gloo_wait(method, *args), touched, options, gives)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], options: Any) -> Work:
        gives = [part for into in outputs for part in into]
        return self._by_gloo("gather", "gather", (outputs, inputs, options), inputs, options, gives)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], options: Any) -> Work:
        return self._by_gloo("scatter", "scatter", (outputs, inputs, options), outputs, options, outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], options: Any = None) -> Work:
        def run() -> None:
            # Gloo has only the form on single tensors.
            sizes_in, sizes_out = ([tensor.numel() for tensor in side] for side in (inputs, outputs))
            flat_in = torch.cat([tensor.reshape(-1) for tensor in inputs])
            flat_out = torch.empty(sum(sizes_out), dtype=flat_in.dtype)
            self._gloo_wait("alltoall_base", flat_out, flat_in, sizes_out, sizes_in)
            for output, part in zip(outputs, torch.split(flat_out, sizes_out), strict=True):
                output.copy_(part.view(output.shape))

        return self._submit("all_to_all", run, inputs, options, outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        values: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        options: Any = None,
    ) -> Work:
        def run() -> None:
            with flat_on_cpu(output, keep_shape=True) as out:
                self._gloo_wait("alltoall_base", out, values.contiguous().cpu(), output_splits, input_splits)

        return self._submit("all_to_all", run, [values], options, [output])

    alltoall_base = all_to_all_single

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Any:
        # Not in the queue: two ranks may send to each other before either receives.
        return self._gloo.send([tensor.contiguous().cpu() for tensor in tensors], peer, tag)

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Any:
        return self._gloo.recv(tensors, peer, tag)

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Any:
        return self._gloo.recv_anysource(tensors, tag)

    # -- the end ----------------------------------------------------------------------------------

    def shutdown(self) -> None:
        self._queue.close()
        self._hierarchy.close()

    def abort(self) -> None:
        self._break(CollectiveError("the group was aborted"))


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _ready(tensors: Sequence[Tensor]) -> torch.cuda.Event | None:
    """An event after which the tensors hold what they should; None where they already do."""
    if not any(tensor.is_cuda for tensor in tensors):
        return None
    event = torch.cuda.Event()
    event.record()  # type: ignore[no-untyped-call]
    return event
