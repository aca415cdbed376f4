"""The operations of `horovod.torch`: synchronous, asynchronous, in place and grouped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.engine.operations import HorovodOp
from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.negotiation.messages import GLOBAL_SET, OpKind, OpRequest, ReduceKind
from weft.compat.horovod.torch import submission
from weft.compat.horovod.torch.submission import first_output, reduce_kind

Average, Sum, Adasum = ReduceKind.AVERAGE, ReduceKind.SUM, ReduceKind.ADASUM
Min, Max, Product = ReduceKind.MIN, ReduceKind.MAX, ReduceKind.PRODUCT


# -- handles ------------------------------------------------------------------------------------------


def _handle(op: HorovodOp) -> int:
    return world.handles.add(op)


def poll(handle: int) -> bool:
    """Return whether an operation is done; `synchronize` will not wait then."""
    op = world.handles.ops.get(handle)
    if op is None:
        raise ValueError(f"a handle must be of an operation that was not synchronized yet, got {handle}")
    return op.done


def synchronize(handle: int) -> Any:
    """Wait for an operation and return its result; None if that was done before."""
    op = world.handles.ops.pop(handle, None)
    if op is None:
        return None
    return op.result() if op.done else wait_for(op)


def wait_for(op: HorovodOp) -> Any:
    """Return the result of an operation once it is there."""
    if not op.done:
        if world.initialized:
            world.engine.wait(op)
        else:
            world.handles.wait(op)
    return op.result()


def _all(op: HorovodOp) -> tuple[Tensor, ...]:
    return tuple(op.outputs or ())


def _into(tensors: Sequence[Tensor]) -> Callable[[HorovodOp], Any]:
    """Make the result of an operation in place: the caller's own tensors."""
    kept = tuple(tensors)
    return lambda _: kept


def _into_one(tensor: Tensor) -> Callable[[HorovodOp], Tensor]:
    """Make the result of an operation in place: the caller's own tensor, which is what is written, or its alias."""
    return (lambda _: tensor) if tensor.requires_grad else first_output


# -- allreduce ----------------------------------------------------------------------------------------


def start_allreduce(
    tensor: Tensor,
    average: bool | None,
    name: str | None,
    op: int | None,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet,
    in_place: bool,
    hurry: bool = False,
) -> HorovodOp:
    """Submit the reduction of a tensor; if it is as it was under this name before, nothing is checked again."""
    known = process_set.known_reductions.get(name)
    if (
        known is not None
        and average is None
        and known.is_for_one(tensor, op, prescale_factor, postscale_factor)
    ):
        return submission.submit_again(known, tensor, process_set, in_place, hurry)
    kind = reduce_kind(op, average, depth=4)
    finish = _into_one(tensor) if in_place else first_output
    factors = prescale_factor, postscale_factor
    return submission.allreduce(
        [tensor], name, kind, *factors, process_set, in_place=in_place, finish=finish, hurry=hurry
    )


def allreduce_async(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduce a tensor into a new one; returns a handle."""
    return world.handles.add(
        start_allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set, False)
    )


def allreduce_async_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduce a tensor in place; returns a handle."""
    known = process_set.known_reductions.get(
        name
    )  # as start_allreduce does, without a call more for each tensor
    if (
        known is not None
        and average is None
        and known.is_for_one(tensor, op, prescale_factor, postscale_factor)
    ):
        return world.handles.add(submission.submit_again(known, tensor, process_set, True, False))
    return world.handles.add(
        start_allreduce(tensor, average, name, op, prescale_factor, postscale_factor, process_set, True)
    )


def allreduce_(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduce a tensor in place."""
    started = start_allreduce(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set, in_place=True, hurry=True
    )
    result: Tensor = wait_for(started)
    return result


def grouped_allreduce_async(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduce tensors that go together into new ones; returns a handle, whose result is a tuple."""
    kind = reduce_kind(op, average)
    factors = prescale_factor, postscale_factor
    return _handle(
        submission.allreduce(
            list(tensors),
            name,
            kind,
            *factors,
            process_set,
            in_place=False,
            finish=_all,
            word="grouped_allreduce",
        )
    )


def grouped_allreduce_async_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Reduce tensors that go together in place; returns a handle, whose result is a tuple."""
    kind = reduce_kind(op, average)
    factors = prescale_factor, postscale_factor
    return _handle(
        submission.allreduce(
            list(tensors),
            name,
            kind,
            *factors,
            process_set,
            in_place=True,
            finish=_into(tensors),
            word="grouped_allreduce",
        )
    )


def grouped_allreduce_(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> tuple[Tensor, ...]:
    """Reduce tensors that go together in place."""
    kind = reduce_kind(op, average)
    handle = grouped_allreduce_async_(
        tensors, None, name, kind, prescale_factor, postscale_factor, process_set
    )
    result: tuple[Tensor, ...] = synchronize(handle)
    return result


def sparse_allreduce_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], Tensor]:
    """Reduce a sparse tensor; returns a function that gives the sum or the mean."""
    if op not in (Average, Sum):
        raise ValueError("a sparse reduction must have op Sum or Average; use op=hvd.Sum")
    kept = tensor.coalesce() if not tensor.is_coalesced() else tensor
    # Rows of indices, one for each value, so that ranks may bring different numbers of them.
    where = kept.indices().t().contiguous()
    base = None if name is None else f"sparse.{name}"
    handles = [
        allgather_async(where, base and f"{base}.indices", process_set),
        allgather_async(kept.values().contiguous(), base and f"{base}.values", process_set),
    ]
    size = len(submission.members_of(process_set))
    shape = tensor.shape

    def result() -> Tensor:
        indices, values = (synchronize(handle) for handle in handles)
        if op == Average:
            values = values / size
        made = torch.sparse_coo_tensor(
            indices.t(), values, shape, device=values.device, check_invariants=False
        )
        return made.coalesce()

    return result


# -- allgather ----------------------------------------------------------------------------------------


def allgather_async(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Join the tensors of all ranks on their first dimension; returns a handle."""
    return _handle(submission.allgather([tensor], name, process_set, finish=first_output))


def grouped_allgather_async(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Join several tensors that go together; returns a handle, whose result is a tuple."""
    tensors = list(tensors)
    return _handle(submission.allgather(tensors, name, process_set, finish=_all, word="grouped_allgather"))


# -- broadcast ----------------------------------------------------------------------------------------


def broadcast_async(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Copy a rank's tensor into a new one on every rank; returns a handle."""
    return _handle(
        submission.broadcast(tensor, root_rank, name, process_set, in_place=False, finish=first_output)
    )


def broadcast_async_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Copy a rank's tensor into everyone's; returns a handle."""
    done = _into_one(tensor)
    return _handle(submission.broadcast(tensor, root_rank, name, process_set, in_place=True, finish=done))


def broadcast_(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Copy a rank's tensor into everyone's."""
    result: Tensor = synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return result


# -- alltoall -----------------------------------------------------------------------------------------


def alltoall_async(
    tensor: Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Exchange rows; returns a handle, whose result is the tensor and the rows received from each rank."""
    return _handle(submission.alltoall(tensor, splits, name, process_set, finish=_with_received))


def _with_received(op: HorovodOp) -> tuple[Tensor, Tensor]:
    return first_output(op), op.extra


# -- reducescatter ------------------------------------------------------------------------------------


def reducescatter_async(
    tensor: Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduce a tensor and deal its rows to the ranks; returns a handle."""
    factors = prescale_factor, postscale_factor
    return _handle(submission.reducescatter([tensor], name, op, *factors, process_set, finish=first_output))


def grouped_reducescatter_async(
    tensors: Sequence[Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Reduce several tensors that go together and deal their rows; returns a handle, whose result is a tuple."""
    factors = prescale_factor, postscale_factor
    return _handle(
        submission.reducescatter(
            list(tensors), name, op, *factors, process_set, finish=_all, word="grouped_reducescatter"
        )
    )


# -- without data -------------------------------------------------------------------------------------


def join(device: int = -1) -> int:
    """Say that this rank has nothing more to reduce, and wait until all have; returns the rank that joined last."""
    engine = world.engine
    request = OpRequest(OpKind.JOIN, GLOBAL_SET, "join")
    op = HorovodOp(request, request.key)
    engine.submit(op, hurry=True)
    engine.wait(op)
    last = int(op.result())
    world.note_join()
    return last


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of a set are here; operations that are under way are not waited for."""
    submission.members_of(process_set)
    number = process_set.process_set_id
    assert number is not None
    request = OpRequest(OpKind.BARRIER, number, world.name_of("barrier", number, None))
    op = HorovodOp(request, request.key)
    world.engine.submit(op, hurry=True)
    world.engine.wait(op)
    op.result()
