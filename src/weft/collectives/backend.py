"""The torch backend "weft": what torch.distributed calls, turned into jobs for a hierarchy.

On torch 2.11 to 2.13 a backend in Python must be a whole ProcessGroup. The names of some methods changed in 2.13, so
both spellings are there. What does not profit from the machine's shape (gather, scatter, all-to-all, point to point) is
left to a Gloo group of the same members.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store

from weft.collectives.blame import first_cause
from weft.collectives.call import SIGNATURE_BYTES, Call, compare
from weft.collectives.meeting import meet
from weft.collectives.mode import Bounds
from weft.collectives.reduction import Reduction, reduction_of
from weft.collectives.staging import (
    Ready,
    as_bytes,
    flat_copy_if_needed,
    flat_on_cpu,
    joined,
    put,
    put_parts,
)
from weft.collectives.work import Job, Letter, Queue, Work
from weft.errors import CollectiveError, MismatchError, PeerError

# torch's stubs give what callers may write, in several forms each; a group in Python is called in one form only, with
# `opts` by position or by name.
_ProcessGroup: Any = dist.ProcessGroup


class WeftGroup(_ProcessGroup):  # type: ignore[misc]
    """One group of ranks."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        self._name = self._description = ""
        self._doing = Call("the meeting of the group")
        self._broken: BaseException | None = None
        self._debug = os.environ.get("WEFT_DEBUG", "0") not in ("", "0")
        self._calls = 0
        self._store = _store_of_this_life(store, rank, timeout)
        self._queue = Queue("weft-collectives")
        meeting = meet(self._store, rank, size, timeout, lambda: str(self._doing))
        self._members = meeting.members
        self._hierarchy = meeting.hierarchy()
        self._gloo: Any = dist.ProcessGroupGloo(PrefixStore("gloo", self._store), rank, size, timeout)

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

    def _submit(self, call: Call, run: Callable[[], Any], opts: Any, gives: list[Tensor]) -> Work:
        """Queue an operation; `gives` is what its future holds."""
        ready = Ready([*call.tensors, *gives])

        def guarded() -> Any:
            if self._broken is not None:
                raise CollectiveError(
                    f"the group must be whole for {call}, got one that broke: {self._broken}"
                )
            self._doing = call
            ready.wait()
            try:
                if self._debug:
                    self._agree(call)
                return run()
            except MismatchError as error:
                self._break(error)
                raise
            except (PeerError, RuntimeError) as error:
                raise self._failed(call, error) from error
            except BaseException as error:  # Ctrl-C, say: the others wait for us in vain
                self._break(error)
                raise

        job = Job(guarded, gives)
        self._queue.put(job, soon=bool(getattr(opts, "asyncOp", True)))
        return Work(job, self._queue)

    def _agree(self, call: Call) -> None:
        """With WEFT_DEBUG: make sure that all ranks make the same call."""
        self._calls += 1
        signatures = torch.empty(self._size * SIGNATURE_BYTES, dtype=torch.uint8)
        self._gather_bytes(call.signature(self._calls), signatures, [SIGNATURE_BYTES] * self._size)
        compare(signatures, self._members)

    def _failed(self, call: Call, error: Exception) -> CollectiveError:
        """The error to raise: what went wrong, and through whom; the group is broken from now on."""
        self._break(error)
        message = str(error)
        if str(call) not in message:  # what torch and Gloo raise
            message = f"{call} failed: {error}"
        message, named = first_cause(self._store, self._members, self._rank, message, str(call))
        failure = PeerError(message) if named or isinstance(error, PeerError) else CollectiveError(message)
        self._broken = failure
        return failure

    def _break(self, error: BaseException) -> None:
        """Let the others know at once: they would wait for us in vain."""
        self._broken = error
        if hierarchy := self.__dict__.get("_hierarchy"):
            hierarchy.close()

    # -- reductions -------------------------------------------------------------------------------

    def _all_reduce(self, tensor: Tensor, reduction: Reduction) -> None:
        with flat_on_cpu(tensor) as values:
            reduction.before(values)
            if values.numel():
                self._hierarchy.all_reduce(values, reduction)
            reduction.after(values, self._size)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Work:
        reduction = _reduction(opts, tensors)
        call = Call("all_reduce", tensors, reduction.name)
        if any(tensor.is_sparse for tensor in tensors):
            return self._submit(call, lambda: self._gloo.allreduce(tensors, opts).wait(), opts, tensors)

        def run() -> None:
            for tensor in tensors:
                self._all_reduce(tensor, reduction)

        return self._submit(call, run, opts, tensors)

    allreduce_coalesced = allreduce

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
        values = inputs.detach().reshape(-1).to("cpu", copy=True)
        reduction.before(values)
        bounds = _bounds(counts)
        first, last = bounds[self._rank]
        if values.numel():
            if (whole := self._hierarchy.one_host) is not None:
                whole.reduce_scatter(values, bounds, reduction)
            else:
                self._hierarchy.all_reduce(values, reduction)
        part = values[first:last]
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

    # -- copies -----------------------------------------------------------------------------------

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work:
        root = opts.rootRank

        def run() -> None:
            for tensor in tensors:
                with flat_on_cpu(tensor) as values:
                    if values.numel() and self._size > 1:
                        self._broadcast_bytes(as_bytes(values), root)

        return self._submit(Call("broadcast", tensors, f"from {root}"), run, opts, tensors)

    def _broadcast_bytes(self, values: Tensor, root: int) -> None:
        if (whole := self._hierarchy.one_host) is not None:
            whole.broadcast(values, root)
        else:
            self._gloo.broadcast(values, root).wait()

    def _gather_bytes(self, values: Tensor, everything: Tensor, counts: Sequence[int]) -> None:
        """Everyone's values, one after the other, to everyone; rank i has `counts[i]`."""
        bounds = _bounds(counts)
        first, last = bounds[self._rank]
        everything[first:last].copy_(values)
        if not everything.numel() or self._size == 1:
            return
        if (whole := self._hierarchy.one_host) is not None:
            whole.all_gather(everything, bounds)
            return
        # Gloo wants parts of one size.
        longest = max(counts)
        padded = torch.zeros(self._size, longest, dtype=torch.uint8)
        padded[self._rank, : counts[self._rank]].copy_(values)
        self._gloo.allgather([list(padded)], [padded[self._rank].clone()]).wait()
        for row, (begin, end) in zip(padded, bounds, strict=True):
            everything[begin:end].copy_(row[: end - begin])

    def _all_gather(self, values: Tensor, outputs: Sequence[Tensor]) -> None:
        """Everyone's values into as many tensors, or into one that holds them all."""
        counts = [output.nbytes for output in outputs]
        if len(counts) != self._size:
            counts = [values.nbytes] * self._size
        everything = torch.empty(sum(counts), dtype=torch.uint8)
        self._gather_bytes(as_bytes(flat_copy_if_needed(values)), everything, counts)
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

    def barrier(self, opts: Any = None) -> Work:
        def run() -> None:
            if (whole := self._hierarchy.one_host) is not None:
                whole.barrier()
            elif self._size > 1:
                self._gloo.barrier().wait()

        return self._submit(Call("barrier"), run, opts, [])

    # -- left to Gloo, as bytes -------------------------------------------------------------------

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        gives = [part for into in outputs for part in into]
        for into, values in zip(outputs, inputs, strict=False):
            self._check_parts("gather", into, values, ours=into)

        def run() -> None:
            for index, values in enumerate(inputs):
                into = outputs[index] if outputs else []
                landing = [torch.empty(part.nbytes, dtype=torch.uint8) for part in into]
                mine = as_bytes(flat_copy_if_needed(values))
                if mine.numel():
                    self._gloo.gather([landing] if into else [], [mine], opts).wait()
                    put_parts(torch.cat(landing) if landing else mine[:0], into)

        return self._submit(Call("gather", inputs, f"to {opts.rootRank}"), run, opts, gives)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        for output, parts in zip(outputs, inputs, strict=False):
            self._check_parts("scatter", parts, output, ours=parts)

        def run() -> None:
            for index, output in enumerate(outputs):
                parts = [as_bytes(flat_copy_if_needed(part)) for part in inputs[index]] if inputs else []
                landing = torch.empty(output.nbytes, dtype=torch.uint8)
                if landing.numel():
                    self._gloo.scatter([landing], [parts] if parts else [], opts).wait()
                    put_parts(landing, [output])

        return self._submit(Call("scatter", outputs, f"from {opts.rootRank}"), run, opts, outputs)

    def _all_to_all(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
        landing = torch.empty(sum(output.nbytes for output in outputs), dtype=torch.uint8)
        sizes_out, sizes_in = ([tensor.nbytes for tensor in side] for side in (outputs, inputs))
        self._gloo.alltoall_base(landing, joined(inputs), sizes_out, sizes_in).wait()
        put_parts(landing, outputs)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        for side in (outputs, inputs):
            self._check_parts("all_to_all", side, inputs[0], ours=[])
        call = Call("all_to_all", inputs, sizes_agree=False)
        return self._submit(call, lambda: self._all_to_all(outputs, inputs), opts, outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        values: Tensor,
        output_splits: list[int],
        input_splits: list[int],
        opts: Any = None,
    ) -> Work:
        for tensor, splits in ((output, output_splits), (values, input_splits)):
            rows = len(tensor) if tensor.dim() else 0
            if splits and (len(splits) != self._size or sum(splits) != rows):
                raise ValueError(f"{self._size} splits must make {rows} rows, got {splits}")
            if not splits and rows % self._size:
                raise ValueError(f"{rows} rows must divide by {self._size} ranks; give the splits")

        def run() -> None:
            with flat_on_cpu(output) as flat:
                out = flat.view(output.shape)
                self._all_to_all(self._split(out, output_splits), self._split(values, input_splits))

        call = Call("all_to_all", [values], sizes_agree=False)
        return self._submit(call, run, opts, [output])

    def _split(self, tensor: Tensor, splits: list[int]) -> Sequence[Tensor]:
        return torch.split(tensor.detach(), splits or [len(tensor) // self._size] * self._size)

    alltoall_base = all_to_all_single

    # -- point to point ---------------------------------------------------------------------------
    # Not in the queue: two ranks may send to each other before either receives.

    def send(self, tensors: list[Tensor], peer: int, tag: int) -> Letter:
        call = Call("send", tensors, f"to {self._members[peer]}")
        Ready(tensors).wait()
        bytes_out = [as_bytes(flat_copy_if_needed(tensor)) for tensor in tensors]
        return self._letter(call, peer, lambda: self._gloo.send(bytes_out, peer, tag))

    def recv(self, tensors: list[Tensor], peer: int, tag: int) -> Letter:
        call = Call("recv", tensors, f"from {self._members[peer]}")
        return self._receive(call, peer, lambda landing: self._gloo.recv(landing, peer, tag))

    def recv_anysource(self, tensors: list[Tensor], tag: int) -> Letter:
        call = Call("recv", tensors, "from anyone")
        return self._receive(call, None, lambda landing: self._gloo.recv_anysource(landing, tag))

    def _receive(self, call: Call, peer: int | None, start: Callable[[list[Tensor]], Any]) -> Letter:
        """Land in the tensor itself where it is flat memory, beside it elsewhere."""
        landing = [as_bytes(flat_copy_if_needed(tensor)) for tensor in call.tensors]

        def arrive() -> None:
            for values, tensor in zip(landing, call.tensors, strict=True):
                if values.data_ptr() != tensor.data_ptr():
                    put_parts(values, [tensor])

        return self._letter(call, peer, lambda: start(landing), arrive)

    def _letter(
        self,
        call: Call,
        peer: int | None,
        start: Callable[[], Any],
        arrive: Callable[[], None] = lambda: None,
    ) -> Letter:
        def explain(error: Exception) -> CollectiveError:
            if peer is None:
                return CollectiveError(f"{call} failed: {error}")
            return PeerError(f"{self._members[peer]} was lost during {call}: {error}")

        if self._broken is not None:
            raise CollectiveError(f"the group must be whole for {call}, got one that broke: {self._broken}")
        try:
            return Letter(start(), arrive, explain)
        except RuntimeError as error:
            raise explain(error) from error

    # -- what callers must get right on their own ---------------------------------------------------

    def _check_parts(self, name: str, parts: Sequence[Tensor], like: Tensor, ours: Sequence[Tensor]) -> None:
        """One part for each rank, all of one type; those in `ours` have as many elements as `like`."""
        if len(parts) != self._size:
            raise ValueError(f"{name} must have {self._size} tensors, one for each rank, got {len(parts)}")
        if types := {part.dtype for part in parts} - {like.dtype}:
            raise ValueError(f"{name} must have tensors of one type, got {like.dtype} and {types.pop()}")
        for part in ours:
            if part.numel() != like.numel():
                raise ValueError(
                    f"{name} must have {like.numel()} elements from each rank, got {part.numel()}"
                )

    def _check_whole(self, name: str, whole: Tensor, part: Tensor) -> None:
        if whole.dtype != part.dtype:
            raise ValueError(f"{name} must have tensors of one type, got {whole.dtype} and {part.dtype}")
        if whole.numel() != part.numel() * self._size:
            raise ValueError(
                f"{name} must have {self._size} x {part.numel()} elements in the whole, got {whole.numel()}"
            )

    # -- the end ----------------------------------------------------------------------------------

    def shutdown(self) -> None:
        self._queue.close()
        if self._broken is None:
            self._broken = CollectiveError("it was destroyed")
        # Connections and memory go now, not when the garbage collector finds whom they refer to.
        hierarchy = self.__dict__.pop("_hierarchy", None)
        if hierarchy is not None:
            hierarchy.close()
        self._gloo = None

    def abort(self) -> None:
        self._break(CollectiveError("it was aborted"))


_lives: set[bytes] = set()  # groups this process has been in


def _store_of_this_life(store: Store, rank: int, timeout: timedelta) -> Store:
    """Keys of our own: a store that outlives its groups still has those of an earlier group of the same name."""
    if rank == 0:
        store.set("weft", secrets.token_hex(8))
    deadline = time.monotonic() + timeout.total_seconds()
    while (life := store.get("weft")) in _lives:  # rank 0 has not come yet
        if time.monotonic() > deadline:
            raise CollectiveError(f"rank 0 must begin the group anew within {timeout}, got the one before")
        time.sleep(0.01)
    _lives.add(life)
    return PrefixStore(f"weft/{life.decode()}", store)


def _reduction(opts: Any, tensors: Sequence[Tensor]) -> Reduction:
    reduction = reduction_of(opts.reduceOp if opts is not None else dist.ReduceOp.SUM)
    for tensor in tensors:
        reduction.check(tensor)
    return reduction


def _bounds(counts: Sequence[int]) -> Bounds:
    """For each rank the first element of its part and the one after the last."""
    return list(pairwise(accumulate(counts, initial=0)))
