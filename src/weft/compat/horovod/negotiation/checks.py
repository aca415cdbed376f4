"""Checks whether the requests of all ranks for one operation fit together; what does not is told to all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from weft.compat.horovod.negotiation.messages import OpKind, OpRequest, ReduceKind

_FREE_FIRST = (OpKind.ALLGATHER, OpKind.ALLTOALL)  # ranks may bring different numbers of rows


def _rest(request: OpRequest) -> tuple[tuple[int, ...], ...]:
    """Return the parts of the shapes that must be equal on all ranks."""
    if request.kind in _FREE_FIRST:
        return tuple(shape[1:] for shape in request.shapes)
    return request.shapes


def _shapes_shown(request: OpRequest) -> str:
    return ", ".join(str(list(shape)) for shape in request.shapes)


# What must be equal, how it is compared, and how it is shown.
_COMPARED: tuple[tuple[str, Callable[[OpRequest], Any], Callable[[OpRequest], str]], ...] = (
    ("operations", lambda r: r.kind, lambda r: OpKind(r.kind).word),
    ("numbers of tensors in a group", lambda r: len(r.shapes), lambda r: str(len(r.shapes))),
    ("data types", lambda r: r.dtypes, lambda r: ", ".join(r.dtypes)),
    ("devices", lambda r: r.device, lambda r: r.device),
    ("reduce operations", lambda r: r.op, lambda r: ReduceKind(r.op).name.capitalize()),
    ("root ranks", lambda r: r.root, lambda r: str(r.root)),
    ("prescale factors", lambda r: r.prescale, lambda r: repr(r.prescale)),
    ("postscale factors", lambda r: r.postscale, lambda r: repr(r.postscale)),
    ("shapes", _rest, _shapes_shown),
    ("numbers of dimensions", lambda r: [len(s) for s in r.shapes], _shapes_shown),
    ("process sets", lambda r: r.splits if r.kind == OpKind.ADD_SET else (), lambda r: str(list(r.splits))),
)


def mismatch(requests: Mapping[int, OpRequest]) -> str:
    """Return what does not fit together in requests by rank, with both values; empty if everything does."""
    ranks = sorted(requests)
    first = requests[ranks[0]]
    for what, value, shown in _COMPARED:
        for rank in ranks[1:]:
            other = requests[rank]
            if value(other) != value(first):
                word = OpKind(first.kind).word
                return (
                    f"Mismatched {what} for {first.name}: {word} must have the same on all ranks, got "
                    f"{shown(first)} on rank {ranks[0]} and {shown(other)} on rank {rank}"
                )
    return _unfit(first)


def _unfit(request: OpRequest) -> str:
    """Return why an operation cannot be done although all ranks agree."""
    if request.kind == OpKind.ALLGATHER and any(not shape for shape in request.shapes):
        return (
            f"Mismatched ranks for {request.name}: a scalar cannot be gathered; use a tensor of one element"
        )
    return ""


def refused_with_join(request: OpRequest, joined: Iterable[int]) -> str:
    """Return why an operation cannot be done while these ranks have joined; empty if it can."""
    who = ", ".join(map(str, sorted(joined)))
    if request.kind == OpKind.BARRIER:
        return ""
    if request.kind != OpKind.ALLREDUCE:
        return f"{OpKind(request.kind).word.capitalize()} is not supported with Join: rank {who} has joined"
    if request.op not in (ReduceKind.AVERAGE, ReduceKind.SUM):
        name = ReduceKind(request.op).name.capitalize()
        return f"Allreduce with {name} is not supported with Join: rank {who} has joined"
    return ""
