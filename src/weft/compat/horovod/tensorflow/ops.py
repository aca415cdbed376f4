"""The operations of `horovod.tensorflow`, with their gradients; they work in `tf.function`, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from weft.compat.horovod.engine.process_sets import ProcessSet, global_process_set
from weft.compat.horovod.negotiation.messages import ReduceKind
from weft.compat.horovod.tensorflow.calls import call_out, name_for, tf
from weft.compat.horovod.tensorflow.compression import TensorFlowCompression as Compression
from weft.compat.horovod.torch import ops
from weft.compat.horovod.torch.ops import Average, Sum
from weft.compat.horovod.torch.submission import members_of, reduce_kind


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,  # names have no scopes here
) -> Any:
    """Return the reduction of a tensor over all ranks; of IndexedSlices the slices of all ranks."""
    kind = reduce_kind(op, average)
    factors = prescale_factor, postscale_factor
    if isinstance(tensor, tf.IndexedSlices):
        return _gathered_slices(tensor, kind, factors, process_set)
    (made,) = _reduce([tensor], kind, compression, factors, name, process_set)
    return made


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Any]:
    """Return the reductions of tensors that go together; IndexedSlices among them are gathered by themselves."""
    kind = reduce_kind(op, average)
    dense = [tensor for tensor in tensors if not isinstance(tensor, tf.IndexedSlices)]
    factors = prescale_factor, postscale_factor
    made = iter(_reduce(dense, kind, compression, factors, name, process_set) if dense else ())
    return [
        _gathered_slices(tensor, kind, factors, process_set)
        if isinstance(tensor, tf.IndexedSlices)
        else next(made)
        for tensor in tensors
    ]


def _gathered_slices(slices: Any, kind: int, factors: tuple[float, float], process_set: ProcessSet) -> Any:
    if factors != (1.0, 1.0):
        raise NotImplementedError(f"IndexedSlices must have no scale factors, got {factors}")
    if kind not in (Average, Sum):
        raise NotImplementedError(
            f"IndexedSlices must be reduced by Average or Sum, got {ReduceKind(kind).name}; use sparse_as_dense"
        )
    values = allgather(slices.values, process_set=process_set)
    indices = allgather(slices.indices, process_set=process_set)
    if kind == Average:
        values = values / tf.cast(len(members_of(process_set)), values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


def _reduce(
    tensors: Sequence[Any],
    kind: int,
    compression: Any,
    factors: tuple[float, float],
    name: str | None,
    process_set: ProcessSet,
) -> list[Any]:
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    called = name_for("Allreduce", given[0], name)
    packed = [compression.compress(tensor) for tensor in given]

    def reduce(values: list[Tensor]) -> Sequence[Tensor]:
        if len(values) == 1:
            handle = ops.allreduce_async(values[0], None, called, kind, *factors, process_set)
            return [ops.synchronize(handle)]
        together = ops.grouped_allreduce_async(values, None, called, kind, *factors, process_set)
        made: Sequence[Tensor] = ops.synchronize(together)
        return made

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def reduced(*values: Any) -> Any:
        def grad(*upstream: Any) -> Any:
            name_back = f"{called}_grad" if called is not None else None
            return _reduce(upstream, kind, Compression.none, factors, name_back, process_set)

        return call_out(reduce, values), grad

    made = reduced(*[tensor for tensor, _ in packed])
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(_list(made), packed, strict=True)]


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the rows of all ranks, of which each may bring as many as it likes."""
    return grouped_allgather([tensor], name, process_set=process_set)[0]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Return the rows of all ranks of tensors that go together."""
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    called = name_for("Allgather", given[0], name)

    def gather(values: list[Tensor]) -> Sequence[Tensor]:
        made: Sequence[Tensor] = ops.synchronize(ops.grouped_allgather_async(values, called, process_set))
        return made

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def gathered(*values: Any) -> Any:
        def grad(*upstream: Any) -> Any:
            return [_own_rows(each, value, process_set) for each, value in zip(upstream, values, strict=True)]

        return call_out(gather, values, shapes=[[None, *each.shape[1:]] for each in values]), grad

    return _list(gathered(*given))


def _own_rows(upstream: Any, value: Any, process_set: ProcessSet) -> Any:
    """Return the mean of a gradient over all ranks, of which a rank gets the rows it brought."""
    rows = tf.reshape(tf.shape(value)[0], [1])
    ranks = list(members_of(process_set))
    everyone = allgather(rows, process_set=process_set)
    begin = tf.reduce_sum(everyone[: ranks.index(_rank())])
    mean = allreduce(upstream, op=Average, process_set=process_set)
    return mean[begin : begin + rows[0]]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Return the tensor of one rank."""
    given = tf.convert_to_tensor(tensor)
    called = name_for("Broadcast", given, name)

    def send(values: list[Tensor]) -> Sequence[Tensor]:
        return [ops.synchronize(ops.broadcast_async(values[0], root_rank, called, process_set))]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def sent(value: Any) -> Any:
        def grad(upstream: Any) -> Any:
            mean = allreduce(upstream, op=Average, process_set=process_set)
            return mean if _rank() == root_rank else tf.zeros_like(mean)

        return call_out(send, [value])[0], grad

    return sent(given)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Exchange rows; returns the rows that were received, and with `splits` also how many came from each rank."""
    given = tf.convert_to_tensor(tensor)
    called = name_for("Alltoall", given, name)
    sizes = [] if splits is None else [tf.cast(tf.convert_to_tensor(splits), tf.int32)]

    def exchange(values: list[Tensor]) -> Sequence[Tensor]:
        parts = values[1] if len(values) > 1 else None
        made: Sequence[Tensor] = ops.synchronize(ops.alltoall_async(values[0], parts, called, process_set))
        return made

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def exchanged(value: Any, *more: Any) -> Any:
        shapes = [[None, *value.shape[1:]], [len(members_of(process_set))]]
        rows, received = call_out(exchange, [value, *more], [value.dtype, tf.int32], shapes)

        def grad(upstream: Any, _: Any = None) -> Any:
            back, _received = alltoall(upstream, received, process_set=process_set)
            return (back, *[None for _ in more])

        return (rows, received), grad

    rows, received = exchanged(given, *sizes)
    return rows if splits is None else (rows, received)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Return this rank's rows of a reduction."""
    return grouped_reducescatter(
        [tensor], device_dense, compression, op, name, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Return this rank's rows of reductions that go together."""
    given = [tf.convert_to_tensor(tensor) for tensor in tensors]
    called = name_for("Reducescatter", given[0], name)
    packed = [compression.compress(tensor) for tensor in given]

    def scatter(values: list[Tensor]) -> Sequence[Tensor]:
        factors = {"prescale_factor": prescale_factor, "postscale_factor": postscale_factor}
        handle = ops.grouped_reducescatter_async(values, called, op=op, process_set=process_set, **factors)
        made: Sequence[Tensor] = ops.synchronize(handle)
        return made

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scattered(*values: Any) -> Any:
        def grad(*upstream: Any) -> Any:
            factor = prescale_factor * postscale_factor
            factor *= len(members_of(process_set)) if op == Sum else 1
            return [allgather(each * factor, process_set=process_set) for each in upstream]

        return call_out(scatter, values, shapes=[[None, *each.shape[1:]] for each in values]), grad

    made = _list(scattered(*[tensor for tensor, _ in packed]))
    return [compression.decompress(tensor, ctx) for tensor, (_, ctx) in zip(made, packed, strict=True)]


def _rank() -> int:
    from weft.compat.horovod.engine.world import world

    return world.place.rank


def _list(made: Any) -> list[Any]:
    return list(made) if isinstance(made, (list, tuple)) else [made]


def world_value(read: Any) -> Any:
    """Return an operation that gives a number of the world, such as its size, when it is carried out."""
    (made,) = call_out(lambda _: [_number(read())], [], [tf.int32], [[]])
    return made


def _number(value: int) -> Tensor:
    import torch

    return torch.tensor(value, dtype=torch.int32)
