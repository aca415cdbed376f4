"""Fusion: operations that are agreed on at the same time and are alike become one, up to a number of bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from weft.compat.horovod.negotiation.messages import AgreedOp, Execution, OpKind, OpRequest, ReduceKind


@dataclass(frozen=True, slots=True)
class DecidedOp:
    """An operation that was agreed on, and the request it was agreed from."""

    request: OpRequest
    agreed: AgreedOp | int  # the number of a request that is as it was
    bytes: int
    alike: (
        Hashable | None
    )  # what it has in common with those that it may be fused with; None: it is done by itself


def fuse(decided: Iterable[DecidedOp], most_bytes: int) -> list[Execution]:
    """Return executions in the order of their first operations; each is within `most_bytes`, or has one operation."""
    batches: list[tuple[OpRequest, list[AgreedOp | int]]] = []
    open_: dict[Hashable, tuple[list[AgreedOp | int], int]] = {}
    for op in decided:
        alike = op.alike
        found = open_.get(alike) if alike is not None else None
        if found is not None and found[1] + op.bytes <= most_bytes:
            found[0].append(op.agreed)
            open_[alike] = found[0], found[1] + op.bytes
            continue
        batch: list[AgreedOp | int] = [op.agreed]
        batches.append((op.request, batch))
        if alike is not None:
            open_[alike] = batch, op.bytes
    return [_execution(request, batch) for request, batch in batches]


def _execution(request: OpRequest, batch: Sequence[AgreedOp | int]) -> Execution:
    numbers = tuple(each for each in batch if isinstance(each, int))
    ops = tuple(each for each in batch if not isinstance(each, int))
    return Execution(request.kind, request.set_id, ops, numbers)


def fusion_key(request: OpRequest) -> Hashable | None:
    """Return what operations must have in common to be fused; None: it is carried out by itself."""
    if request.kind == OpKind.ALLREDUCE and request.op != ReduceKind.ADASUM and len(set(request.dtypes)) == 1:
        factors = request.prescale, request.postscale
        return request.kind, request.set_id, request.dtypes[0], request.device, request.op, factors
    if request.kind == OpKind.BROADCAST:
        return request.kind, request.set_id, request.device, request.root
    return None
