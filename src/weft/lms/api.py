"""What people call: `fit`, `stats`, `plan`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from weft.errors import UsageError
from weft.lms.activations.session import AUTO, Session
from weft.lms.device.transfer import Transfer, current_device, transfer_for
from weft.lms.limit import parse_limit
from weft.lms.plan.plan import Plan
from weft.text import parse_size

_cuda: Any = torch.cuda
_sessions: dict[tuple[Any, ...], Session] = {}
_transfers: dict[tuple[torch.device, int | None], Transfer] = {}
_latest: list[Session] = []
_asked: dict[tuple[Any, ...], Session] = {}


@contextmanager
def fit(
    limit: str | int | float = "auto",
    host: str | int | float | None = None,
    *,
    transfer: Transfer | None = None,
) -> Iterator[Session]:
    """Run a forward and a backward pass within `limit` bytes of device memory and `host` bytes of host memory.

    `limit="auto"` is 95 % of what is free. The same limit again is the same budget: its plans are kept. After an
    out-of-memory error the next step leaves more room.
    """
    session = session_for(limit, host, transfer)
    session.begin()
    try:
        yield session
    except BaseException as error:
        session.end(failed=True)
        if isinstance(error, torch.OutOfMemoryError):
            session.tighten()
        raise
    session.end()


def session_for(
    limit: str | int | float = "auto",
    host: str | int | float | None = None,
    transfer: Transfer | None = None,
) -> Session:
    """The budget that `fit` would use."""
    asking = (limit, host, id(transfer), torch._C._cuda_getDevice() if _cuda.is_initialized() else -1)
    known = _asked.get(asking)  # to look for devices takes longer than all else that a step that fits costs
    if known is not None:
        _latest[:] = [known]
        return known
    asked = parse_limit(limit)
    host_bytes = None if host is None else parse_size(host, "host", write="host='80GB'")
    if transfer is None:
        device = current_device()
        transfer = _transfers.get((device, host_bytes))
        if transfer is None:
            transfer = _transfers[device, host_bytes] = transfer_for(device, host_bytes)
    key = (id(transfer), asked)
    session = _sessions.get(key)
    if session is None:
        budget = int(transfer.capacity() * AUTO) if asked is None else asked
        session = _sessions[key] = Session(
            transfer, budget, smallest=max(1 << 10, min(1 << 20, budget >> 14))
        )
    _latest[:] = [session]
    _asked[asking] = session
    return session


def latest() -> Session:
    """The budget used last."""
    if not _latest:
        raise UsageError(
            "large model support must be in use, got none; run a step inside lms.fit(limit=...) first"
        )
    return _latest[0]


def plan() -> Plan:
    """The plan of the last shape; `.explain()` says it in words."""
    return latest().last_plan()


def stats() -> dict[str, int | float]:
    """What was done so far: IBM's words first, then ours, in bytes and counts.

    `recompute_ms` is that of the last plan; `stall_ms` was measured in the last step that was timed, or is the plan's.
    """
    session = latest()
    counts, (held, used) = session.engine.counts, session.transfer.pinned()
    plan = session.last_plan() if session.planning.shapes.known else None
    planned_s = 0.0 if plan is None else plan.timeline.stall_s
    return {
        "limit": session.limit,
        "reclaimed": counts.swaps_out,
        "reclaimed_bytes": counts.bytes_out,
        "pinned": held,
        "pinned_used": used,
        "saved_bytes": counts.saved_bytes,
        "swaps_in": counts.swaps_in,
        "bytes_in": counts.bytes_in,
        "late": counts.late,
        "rebuilt": counts.rebuilt,
        "rebuilt_bytes": counts.bytes_rebuilt,
        "evicted": counts.evicted,
        "steps": session.steps,
        "recorded": session.recorded,
        "replans": session.planning.replans,
        "planning_ms": session.planning.seconds * 1e3,
        "shapes": len(session.planning.shapes.known),
        "recompute_ms": 0.0 if plan is None else plan.timeline.recipe_s * 1e3,
        "stall_ms": (planned_s if session.planning.stall_s is None else session.planning.stall_s) * 1e3,
        "paged_bytes": sum(keeper.residence.away for keeper in session.keepers),
        "paged_in_bytes": sum(keeper.bytes_in for keeper in session.keepers),
        "peak": session.peak,
        "over": session.over,
    }


def forget() -> None:
    """Drop all budgets and what was learned; pinned memory goes back when nothing uses it."""
    _sessions.clear()
    _asked.clear()
    _latest.clear()
    for transfer in _transfers.values():
        release = getattr(transfer, "release", None)
        if release is not None:
            release()
    _transfers.clear()
