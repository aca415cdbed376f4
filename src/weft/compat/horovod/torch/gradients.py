"""Operations that autograd goes through: the synchronous forms that make new tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.torch import ops, submission
from weft.compat.horovod.torch.compression import Compression, Compressor
from weft.compat.horovod.torch.ops import Average, Sum, synchronize
from weft.compat.horovod.torch.submission import reduce_kind

_Function: Any = torch.autograd.Function


class _AllreduceFunction(_Function):  # type: ignore[misc]
    """The gradient of a reduction is the same reduction of the gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, name: str | None, op: int, pre: float, post: float, to: Any) -> Any:
        ctx.given = op, pre, post, to
        return synchronize(ops.allreduce_async(tensor, None, name, op, pre, post, to))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        op, pre, post, to = ctx.given
        return allreduce(
            grad.contiguous(), op=op, prescale_factor=pre, postscale_factor=post, process_set=to
        ), *([None] * 5)


class _GroupedAllreduceFunction(_Function):  # type: ignore[misc]
    """The gradient of a grouped reduction is the same reduction of the gradients."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, op: int, pre: float, post: float, to: Any, *tensors: Tensor
    ) -> Any:
        ctx.given = op, pre, post, to
        return synchronize(ops.grouped_allreduce_async(tensors, None, name, op, pre, post, to))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        op, pre, post, to = ctx.given
        contiguous = [grad.contiguous() for grad in grads]
        handle = ops.grouped_allreduce_async(contiguous, None, None, op, pre, post, to)
        return None, None, None, None, None, *synchronize(handle)


class _AllgatherFunction(_Function):  # type: ignore[misc]
    """The gradient of a gathering is this rank's rows of the mean of all gradients."""

    @staticmethod
    def forward(ctx: Any, name: str | None, to: Any, *tensors: Tensor) -> Any:
        op = submission.allgather(
            list(tensors), name, to, finish=lambda done: done, word=_word(tensors), hurry=True
        )
        done = ops.wait_for(op)
        ctx.rows, ctx.to, ctx.index = done.extra, to, to.rank()
        return tuple(done.outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        contiguous = [grad.contiguous() for grad in grads]
        handle = ops.grouped_allreduce_async(contiguous, None, None, Average, process_set=ctx.to)
        mine = [
            mean.split(list(rows))[ctx.index]
            for mean, rows in zip(synchronize(handle), ctx.rows, strict=True)
        ]
        return None, None, *mine


def _word(tensors: Sequence[Tensor]) -> str:
    return "allgather" if len(tensors) == 1 else "grouped_allgather"


class _BroadcastFunction(_Function):  # type: ignore[misc]
    """The gradient of a broadcast is the mean of all gradients at the root, and zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, root_rank: int, name: str | None, to: Any) -> Any:
        ctx.root, ctx.to = root_rank, to
        return synchronize(ops.broadcast_async(tensor, root_rank, name, to))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        mean = allreduce(grad.contiguous(), op=Average, process_set=ctx.to)
        if world.engine.rank != ctx.root:
            mean = mean * 0
        return mean, None, None, None


class _AlltoallFunction(_Function):  # type: ignore[misc]
    """The gradient of an exchange goes back where the rows came from."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, splits: Any, name: str | None, to: Any) -> Any:
        made, received = synchronize(ops.alltoall_async(tensor, splits, name, to))
        ctx.received, ctx.to, ctx.rows = received, to, tensor.shape[0]
        ctx.mark_non_differentiable(received)
        return made, received

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        back, _ = synchronize(ops.alltoall_async(grad.contiguous(), ctx.received, None, ctx.to))
        if back.shape[0] < ctx.rows:  # rows that were sent to nobody
            back = torch.cat([back, back.new_zeros((ctx.rows - back.shape[0], *back.shape[1:]))])
        return back, None, None, None


class _ReducescatterFunction(_Function):  # type: ignore[misc]
    """The gradient of a reducescatter is everyone's gradients side by side, times the ranks for a sum."""

    @staticmethod
    def forward(
        ctx: Any, name: str | None, op: int, to: Any, pre: float, post: float, *tensors: Tensor
    ) -> Any:
        ctx.given, ctx.to = (op, pre * post), to
        if len(tensors) == 1:
            return (synchronize(ops.reducescatter_async(tensors[0], name, op, to, pre, post)),)
        return synchronize(ops.grouped_reducescatter_async(tensors, name, op, to, pre, post))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        op, factor = ctx.given
        if op == Sum:
            factor *= ctx.to.size()
        scaled = [(grad * factor).contiguous() for grad in grads]
        handle = ops.grouped_allgather_async(scaled, None, ctx.to)
        return None, None, None, None, None, *synchronize(handle)


# -- what scripts call --------------------------------------------------------------------------------


def allreduce(
    tensor: Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Reduce a tensor over all ranks of a set: op(prescale * x) * postscale; the default is their mean."""
    kind = reduce_kind(op, average)
    compressed, ctx = compression.compress(tensor)
    factors = prescale_factor, postscale_factor
    return compression.decompress(
        _AllreduceFunction.apply(compressed, name, kind, *factors, process_set), ctx
    )


def grouped_allreduce(
    tensors: Sequence[Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """Reduce tensors that go together."""
    kind = reduce_kind(op, average)
    compressed = [compression.compress(tensor) for tensor in tensors]
    factors = prescale_factor, postscale_factor
    reduced = _GroupedAllreduceFunction.apply(
        name, kind, *factors, process_set, *(each for each, _ in compressed)
    )
    return [compression.decompress(each, ctx) for each, (_, ctx) in zip(reduced, compressed, strict=True)]


def allgather(
    tensor: Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Join the tensors of all ranks on their first dimension, which may differ."""
    gathered: tuple[Tensor, ...] = _AllgatherFunction.apply(name, process_set, tensor)
    return gathered[0]


def grouped_allgather(
    tensors: Sequence[Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Tensor]:
    """Join several tensors that go together."""
    return list(_AllgatherFunction.apply(name, process_set, *tensors))


def broadcast(
    tensor: Tensor, root_rank: int, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Tensor:
    """Return the tensor of one rank of the world, on every rank of a set."""
    result: Tensor = _BroadcastFunction.apply(tensor, root_rank, name, process_set)
    return result


def alltoall(
    tensor: Tensor, splits: Any = None, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Exchange rows: `splits[i]` of them go to rank i. With splits, returns the received ones, too."""
    made, received = _AlltoallFunction.apply(tensor, splits, name, process_set)
    return made if splits is None else (made, received)


def reducescatter(
    tensor: Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Reduce a tensor and deal its rows to the ranks; the first ones get one more if they do not divide."""
    compressed, ctx = compression.compress(tensor)
    factors = prescale_factor, postscale_factor
    (made,) = _ReducescatterFunction.apply(name, op, process_set, *factors, compressed)
    return compression.decompress(made, ctx)


def grouped_reducescatter(
    tensors: Sequence[Tensor],
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Tensor]:
    """Reduce several tensors that go together, and deal their rows."""
    compressed = [compression.compress(tensor) for tensor in tensors]
    factors = prescale_factor, postscale_factor
    made = _ReducescatterFunction.apply(name, op, process_set, *factors, *(each for each, _ in compressed))
    return [compression.decompress(each, ctx) for each, (_, ctx) in zip(made, compressed, strict=True)]
