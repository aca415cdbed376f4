"""Submission of operations: checks that one rank can do by itself, and the request that is negotiated."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from weft.compat.horovod.engine.adasum import is_power_of_two
from weft.compat.horovod.engine.operations import HorovodOp, KnownReduction
from weft.compat.horovod.engine.process_sets import ProcessSet
from weft.compat.horovod.engine.world import world
from weft.compat.horovod.errors import HorovodInternalError
from weft.compat.horovod.negotiation.messages import GLOBAL_SET, OpKind, OpRequest, ReduceKind
from weft.compat.horovod.negotiation.names import OpKey

REDUCED_TYPES = {
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
COPIED_TYPES = REDUCED_TYPES | {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
}
REDUCE_KINDS = frozenset(ReduceKind)
REQUESTS_KEPT = 4096  # of names, to be used again
Finish = Callable[[HorovodOp], Any]


def reduce_kind(op: int | None, average: bool | None, *, depth: int = 3) -> int:
    """Return the reduction that is asked for, by `op` or in the old way; the script is `depth` - 1 calls away."""
    if average is not None:
        if op is not None:
            raise ValueError("a reduction must be given by op or by average, got both; drop average")
        warnings.warn(
            "average= is deprecated; use op=hvd.Average or op=hvd.Sum", DeprecationWarning, stacklevel=depth
        )
        return ReduceKind.AVERAGE if average else ReduceKind.SUM
    if op is None:
        return ReduceKind.AVERAGE
    if op not in REDUCE_KINDS:
        raise ValueError(f"op must be one of {', '.join(kind.name for kind in ReduceKind)}, got {op!r}")
    return op


def members_of(process_set: ProcessSet) -> Sequence[int]:
    """Return the ranks of a set that this process may use, and refuse any other."""
    engine = world.engine
    number = process_set.process_set_id
    if number is None or number not in engine.sets:
        raise ValueError(
            f"a process set must be registered by hvd.init() or hvd.add_process_set(), got {process_set!r}"
        )
    ranks = engine.sets[number]
    if engine.rank not in ranks:
        raise ValueError(
            f"a rank must be in the process set it uses, got rank {engine.rank} and {process_set!r}"
        )
    return ranks


def check_tensors(tensors: Sequence[Tensor], *, reduced: bool) -> tuple[str, ...]:
    """Return the types of tensors, and refuse what cannot travel."""
    known = REDUCED_TYPES if reduced else COPIED_TYPES
    names = []
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ValueError(f"an operation must have tensors, got {type(tensor).__name__}")
        name = known.get(tensor.dtype)
        if name is None or tensor.layout is not torch.strided:
            layout = "" if tensor.layout is torch.strided else f" with layout {tensor.layout}"
            raise ValueError(
                f"a tensor must have one of the types {', '.join(known.values())}, got {tensor.dtype}{layout}"
            )
        if not (tensor.is_contiguous() or _is_channels_last(tensor)):
            raise ValueError("a tensor must be contiguous, got one that is not; use tensor.contiguous()")
        names.append(name)
    return tuple(names)


def _is_channels_last(tensor: Tensor) -> bool:
    """Return whether a tensor of pictures or films has its channels side by side, and no gaps."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])


def submit(
    request: OpRequest,
    inputs: Sequence[Tensor],
    *,
    in_place: bool,
    finish: Finish | None,
    hurry: bool,
    contiguous: bool = False,  # all inputs are known to be
) -> HorovodOp:
    """Hand an operation to the engine."""
    if contiguous or all(map(Tensor.is_contiguous, inputs)):
        op = _op(request, request.key, inputs, in_place=in_place, finish=finish)
    else:
        op = _op_by_copies(request, inputs, in_place=in_place, finish=finish)
    if request.device != "cpu":
        devices = {tensor.device for tensor in op.inputs}
        op.events = tuple(torch.cuda.current_stream(device).record_event() for device in devices)
    world.engine.submit(op, hurry=hurry)
    return op


def _op(
    request: OpRequest, key: OpKey, inputs: Sequence[Tensor], *, in_place: bool, finish: Finish | None
) -> HorovodOp:
    plain = [tensor.detach() if tensor.requires_grad else tensor for tensor in inputs]
    # In place, what is written is the same list: nothing is to be copied.
    return HorovodOp(request, key, plain, plain if in_place else None, finish)


def _op_by_copies(
    request: OpRequest, inputs: Sequence[Tensor], *, in_place: bool, finish: Finish | None
) -> HorovodOp:
    """Make an operation on copies whose rows lie one after the other, as they do on other ranks."""
    copies = [tensor.detach().contiguous() for tensor in inputs]
    if not in_place:
        return HorovodOp(request, request.key, copies, None, finish)
    own = [tensor.detach() if tensor.requires_grad else tensor for tensor in inputs]

    def put_back(op: HorovodOp) -> Any:
        if op.outputs is copies:
            op.outputs = own
            with torch.no_grad():
                for tensor, values in zip(own, copies, strict=True):
                    tensor.copy_(values)
        return None if finish is None else finish(op)

    return HorovodOp(request, request.key, copies, copies, put_back)


def submit_again(
    known: KnownReduction, tensor: Tensor, process_set: ProcessSet, in_place: bool, hurry: bool
) -> HorovodOp:
    """Hand the engine a reduction that it has had before: of a single tensor, which is as it was."""
    plain = (tensor.detach() if tensor.requires_grad else tensor,)
    if in_place:
        op = HorovodOp(known.request, known.key, plain, plain, None, tensor)
    else:
        op = HorovodOp(known.request, known.key, plain, None, first_output)
    assert process_set.engine is not None  # or nothing would be known
    process_set.engine.submit(op, hurry, known.bytes)
    return op


def first_output(op: HorovodOp) -> Tensor:
    """Make the result of an operation that has one tensor."""
    assert op.outputs is not None
    return op.outputs[0]


def _devices(tensors: Sequence[Tensor]) -> str:
    kinds = {tensor.device.type for tensor in tensors}
    if len(kinds) > 1:
        raise HorovodInternalError(
            f"the tensors of a group must be on one kind of device, got {', '.join(sorted(kinds))}"
        )
    return kinds.pop() if kinds else "cpu"


def allreduce(
    tensors: Sequence[Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    in_place: bool,
    finish: Finish,
    word: str = "allreduce",
    hurry: bool = False,
) -> HorovodOp:
    """Submit a reduction of one tensor, or of a group."""
    known_as = name if word == "allreduce" else (word, name)
    known = process_set.known_reductions.get(known_as)
    if known is not None and known.is_for(tensors, op, prescale, postscale):
        return submit(known.request, tensors, in_place=in_place, finish=finish, hurry=hurry, contiguous=True)
    ranks = members_of(process_set)
    dtypes = check_tensors(tensors, reduced=True)
    if op == ReduceKind.ADASUM:
        _check_adasum(tensors, ranks, process_set)
    number = process_set.process_set_id
    assert number is not None
    request = OpRequest(
        OpKind.ALLREDUCE,
        number,
        world.name_of(word, number, name),
        dtypes,
        tuple(tuple(tensor.shape) for tensor in tensors),
        _devices(tensors),
        op,
        -1,
        float(prescale),
        float(postscale),
    )
    may_repeat = name is not None and op != ReduceKind.ADASUM and request.device == "cpu"
    if may_repeat and (known is not None or len(process_set.known_reductions) < REQUESTS_KEPT):
        made = KnownReduction(request, [tensor.dtype for tensor in tensors])
        process_set.known_reductions[known_as] = made
    return submit(request, tensors, in_place=in_place, finish=finish, hurry=hurry)


def _check_adasum(tensors: Sequence[Tensor], ranks: Sequence[int], process_set: ProcessSet) -> None:
    if process_set.process_set_id != GLOBAL_SET:
        raise NotImplementedError("Adasum must have all ranks, got a process set; use op=hvd.Sum there")
    if not is_power_of_two(len(ranks)):
        raise NotImplementedError(
            f"Adasum must have 2, 4, 8, ... ranks, got {len(ranks)}; use op=hvd.Average"
        )
    if not all(tensor.is_floating_point() for tensor in tensors):
        raise ValueError("Adasum must have floating-point tensors, got integers; use op=hvd.Sum")


def reducescatter(
    tensors: Sequence[Tensor],
    name: str | None,
    op: int,
    prescale: float,
    postscale: float,
    process_set: ProcessSet,
    *,
    finish: Finish,
    word: str = "reducescatter",
    hurry: bool = False,
) -> HorovodOp:
    """Submit a reduction whose rows are dealt to the ranks."""
    members_of(process_set)
    dtypes = check_tensors(tensors, reduced=True)
    if op not in (ReduceKind.AVERAGE, ReduceKind.SUM):
        raise HorovodInternalError(f"reducescatter must have op Sum or Average, got {ReduceKind(op).name}")
    if any(not tensor.dim() for tensor in tensors):
        raise ValueError("reducescatter must have tensors with rows, got a scalar")
    number = process_set.process_set_id
    assert number is not None
    request = OpRequest(
        OpKind.REDUCESCATTER,
        number,
        world.name_of(word, number, name),
        dtypes,
        tuple(tuple(tensor.shape) for tensor in tensors),
        _devices(tensors),
        op,
        -1,
        float(prescale),
        float(postscale),
    )
    return submit(request, tensors, in_place=False, finish=finish, hurry=hurry)


def allgather(
    tensors: Sequence[Tensor],
    name: str | None,
    process_set: ProcessSet,
    *,
    finish: Finish,
    word: str = "allgather",
    hurry: bool = False,
) -> HorovodOp:
    """Submit a gathering of rows, of which each rank may bring as many as it likes."""
    members_of(process_set)
    dtypes = check_tensors(tensors, reduced=False)
    number = process_set.process_set_id
    assert number is not None
    request = OpRequest(
        OpKind.ALLGATHER,
        number,
        world.name_of(word, number, name),
        dtypes,
        tuple(tuple(tensor.shape) for tensor in tensors),
        _devices(tensors),
    )
    return submit(request, tensors, in_place=False, finish=finish, hurry=hurry)


def broadcast(
    tensor: Tensor,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet,
    *,
    in_place: bool,
    finish: Finish,
    hurry: bool = False,
) -> HorovodOp:
    """Submit a broadcast from a rank of the world."""
    ranks = members_of(process_set)
    dtypes = check_tensors([tensor], reduced=False)
    if root_rank not in ranks:
        raise ValueError(
            f"root_rank must be a rank of the world that is in the process set, got {root_rank} for {list(ranks)}"
        )
    number = process_set.process_set_id
    assert number is not None
    request = OpRequest(
        OpKind.BROADCAST,
        number,
        world.name_of("broadcast", number, name),
        dtypes,
        (tuple(tensor.shape),),
        tensor.device.type,
        root=int(root_rank),
    )
    return submit(request, [tensor], in_place=in_place, finish=finish, hurry=hurry)


def alltoall(
    tensor: Tensor,
    splits: Any,
    name: str | None,
    process_set: ProcessSet,
    *,
    finish: Finish,
    hurry: bool = False,
) -> HorovodOp:
    """Submit an exchange of rows."""
    ranks = members_of(process_set)
    dtypes = check_tensors([tensor], reduced=False)
    number = process_set.process_set_id
    assert number is not None
    request = OpRequest(
        OpKind.ALLTOALL,
        number,
        world.name_of("alltoall", number, name),
        dtypes,
        (tuple(tensor.shape),),
        tensor.device.type,
        splits=_splits(tensor, splits, len(ranks)),
    )
    return submit(request, [tensor], in_place=False, finish=finish, hurry=hurry)


def _splits(tensor: Tensor, given: Any, size: int) -> tuple[int, ...]:
    """Return how many rows go to each rank."""
    if not tensor.dim():
        raise ValueError("alltoall must have tensors with rows, got a scalar")
    rows = tensor.shape[0]
    if given is None:
        if rows % size:
            raise ValueError(
                f"alltoall without splits must have rows that divide by {size}, got {rows}; give splits"
            )
        return (rows // size,) * size
    splits = given if isinstance(given, Tensor) else torch.tensor(given, dtype=torch.int32)
    if splits.dtype != torch.int32:
        raise ValueError(f"splits must be of the type torch.int32, got {splits.dtype}")
    if splits.dim() != 1 or splits.numel() != size:
        raise ValueError(f"splits must have {size} numbers, one for each rank, got {list(splits.shape)}")
    numbers = tuple(int(count) for count in splits.tolist())
    if sum(numbers) > rows or min(numbers) < 0:
        raise ValueError(
            f"splits must not be negative and sum up to at most {rows} rows, got {list(numbers)}"
        )
    return numbers
