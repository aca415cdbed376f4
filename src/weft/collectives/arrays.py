"""Collectives for NumPy arrays and torch tensors: `weft.allreduce` and its kin.

What comes back is of the kind that was given, a new one unless `inplace` is said. All ranks call in the same order,
with the same types. They use the group of `weft.init()`, or another that is given.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from weft.collectives.modes.mode import even_bounds
from weft.errors import UsageError

A = TypeVar("A")  # a NumPy array or a torch tensor
Group = dist.ProcessGroup | None

OPERATORS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.SUM,  # divided here: not every backend can
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "product": dist.ReduceOp.PRODUCT,
}


def allreduce(values: A, op: str = "sum", *, inplace: bool = False, group: Group = None) -> A:
    """Reduce the values of all ranks, and return the result on every rank: op is sum, avg, min, max or product."""
    group = _group("allreduce", group)
    operator = _operator(op)
    tensor = _tensor(values, group)
    dist.all_reduce(tensor, operator, group=group)
    return _back(_averaged(tensor, op, group), values, inplace=inplace)


def allreduce_n(
    values: Sequence[A], op: str = "sum", *, inplace: bool = False, group: Group = None
) -> list[A]:
    """Reduce many arrays at once, in one message for each type and device."""
    group = _group("allreduce_n", group)
    _operator(op)
    tensors = [_own_or_copy(value, group, own=inplace) for value in values]
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for together in kinds.values():
        _reduce_together(together, op, group)
    return [
        value if tensor is value else _back(tensor, value, inplace=inplace)
        for tensor, value in zip(tensors, values, strict=True)
    ]


def _own_or_copy(values: Any, group: dist.ProcessGroup, *, own: bool) -> Tensor:
    """Return the tensor itself if it may be reduced where it is, else a copy."""
    if (
        own
        and isinstance(values, Tensor)
        and values.is_contiguous()
        and not values.requires_grad
        and (values.is_cuda or dist.get_backend(group) != "nccl")
    ):
        return values
    return _tensor(values, group)


def _reduce_together(tensors: list[Tensor], op: str, group: dist.ProcessGroup) -> None:
    """Reduce tensors of one type and device in place; the backend "weft" needs no copy of all of them for it."""
    if dist.get_backend(group) == "weft":
        options = dist.AllreduceCoalescedOptions()
        operator: Any = dist.ReduceOp.AVG if op == "avg" else _operator(op)
        options.reduceOp = operator
        options.asyncOp = False
        group.allreduce_coalesced(tensors, options).wait()
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat, _operator(op), group=group)
    _averaged(flat, op, group)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))


def broadcast(values: A, root: int = 0, *, inplace: bool = False, group: Group = None) -> A:
    """Return the values of rank `root` on every rank; the others give values of the same shape and type."""
    group = _group("broadcast", group)
    if not 0 <= root < dist.get_world_size(group):
        raise UsageError(f"the root must be a rank from 0 to {dist.get_world_size(group) - 1}, got {root}")
    tensor = _tensor(values, group)
    dist.broadcast(tensor, group=group, group_src=root)
    return _back(tensor, values, inplace=inplace)


def allgather(values: A, *, group: Group = None) -> A:
    """Return the values of all ranks, joined along the first dimension, whose size may differ from rank to rank."""
    group = _group("allgather", group)
    tensor = _tensor(values, group)
    tensor = tensor.reshape(1) if tensor.dim() == 0 else tensor
    lengths = _gathered(torch.tensor(len(tensor), device=tensor.device), group).tolist()
    padded = tensor.new_zeros((max(lengths), *tensor.shape[1:]))
    padded[: len(tensor)] = tensor
    rows = _gathered(padded, group)
    return _back(torch.cat([row[:length] for row, length in zip(rows, lengths, strict=True)]), values)


def reduce_scatter(values: A, op: str = "sum", *, group: Group = None) -> A:
    """Reduce the values of all ranks, and return this rank's part of the first dimension; first parts may be larger."""
    group = _group("reduce_scatter", group)
    operator = _operator(op)
    tensor = _tensor(values, group)
    if tensor.dim() == 0:
        raise UsageError("reduce_scatter must get values with a dimension to cut, got a single number")
    world = dist.get_world_size(group)
    bounds = even_bounds(len(tensor), world)
    length = bounds[0][1]
    padded = tensor.new_zeros((world, length, *tensor.shape[1:]))
    for part, (first, last) in zip(padded, bounds, strict=True):
        part[: last - first] = tensor[first:last]
    ours = tensor.new_empty((length, *tensor.shape[1:]))
    dist.reduce_scatter(ours, list(padded), operator, group=group)
    first, last = bounds[dist.get_rank(group)]
    return _back(_averaged(ours[: last - first], op, group), values)


def alltoall(values: A, splits: Sequence[int] | None = None, *, group: Group = None) -> A:
    """Cut the first dimension into a part for each rank, evenly or by `splits`; return those cut for this rank."""
    group = _group("alltoall", group)
    tensor = _tensor(values, group)
    world = dist.get_world_size(group)
    counts = _splits(tensor, splits, world)
    sent = torch.tensor(counts, device=tensor.device)
    expected = torch.empty_like(sent)
    dist.all_to_all_single(expected, sent, group=group)
    into = tensor.new_empty((int(expected.sum()), *tensor.shape[1:]))
    dist.all_to_all_single(into, tensor, expected.tolist(), counts, group=group)
    return _back(into, values)


def barrier(*, group: Group = None) -> None:
    """Return when every rank has called."""
    dist.barrier(group=_group("barrier", group))


def _group(name: str, group: Group) -> dist.ProcessGroup:
    found = group or (dist.group.WORLD if dist.is_initialized() else None)
    if found is None:
        raise UsageError(
            f"weft.{name} must come after weft.init(), got no group of ranks; call weft.init() first"
        )
    return found


def _operator(op: str) -> Any:
    if op not in OPERATORS:
        raise UsageError(f"op must be one of {', '.join(OPERATORS)}, got {op!r}")
    return OPERATORS[op]


def _tensor(values: Any, group: dist.ProcessGroup) -> Tensor:
    """Return a contiguous copy that may be changed, on a device that the group serves."""
    if isinstance(values, Tensor):
        tensor = values.detach().clone(memory_format=torch.contiguous_format)
    else:
        # Whoever has an array has NumPy loaded; we need not.
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(values, (numpy.ndarray, numpy.generic)):
            raise UsageError(
                f"values must be a NumPy array or a torch tensor, got {type(values).__name__}; "
                "wrap it in numpy.asarray"
            )
        try:
            tensor = torch.from_numpy(numpy.array(values, order="C"))
        except (TypeError, ValueError):
            raise UsageError(
                f"values must be of a type that torch knows too, got {values.dtype}; use astype"
            ) from None
    if not tensor.is_cuda and dist.get_backend(group) == "nccl":
        return tensor.cuda()
    return tensor


def _back(tensor: Tensor, values: A, *, inplace: bool = False) -> A:
    """Return a result as the kind of array that was given."""
    return cast("A", _as_given(tensor, values, inplace=inplace))


def _as_given(tensor: Tensor, values: Any, *, inplace: bool) -> Any:
    if isinstance(values, Tensor):
        if inplace:
            with torch.no_grad():
                return values.copy_(tensor)
        return tensor.to(values.device)
    result = tensor.cpu().numpy()
    if inplace:
        values[...] = result
        return values
    return result


def _averaged(tensor: Tensor, op: str, group: dist.ProcessGroup) -> Tensor:
    if op != "avg":
        return tensor
    whole = not (tensor.is_floating_point() or tensor.is_complex())
    return tensor.div_(dist.get_world_size(group), rounding_mode="trunc" if whole else None)


def _gathered(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """Return the tensors of all ranks, one row for each."""
    # The form with a list is the one whose name is the same in every torch.
    everything = tensor.new_empty((dist.get_world_size(group), *tensor.shape))
    dist.all_gather(list(everything), tensor, group=group)
    return everything


def _splits(tensor: Tensor, splits: Sequence[int] | None, world: int) -> list[int]:
    if tensor.dim() == 0:
        raise UsageError("alltoall must get values with a dimension to cut, got a single number")
    if splits is None:
        if len(tensor) % world:
            raise UsageError(
                f"the first dimension must divide by the {world} ranks, got {len(tensor)}; give splits"
            )
        return [len(tensor) // world] * world
    counts = [int(count) for count in splits]
    if len(counts) != world or min(counts) < 0 or sum(counts) != len(tensor):
        raise UsageError(
            f"splits must be {world} counts that add up to the first dimension, {len(tensor)}, got {counts}"
        )
    return counts
