"""The functions that people call: `fit` puts a step under a budget, `plan` and `stats` tell what it did."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from weft.errors import UsageError
from weft.lms.activations.session import BudgetSession
from weft.lms.budget import Budget
from weft.lms.device.torch_private import current_device_index
from weft.lms.device.transfer import Transfer, current_device, transfer_for
from weft.lms.limit import parse_limit
from weft.lms.planning.plan import Plan
from weft.lms.tuning import DEFAULTS
from weft.text import parse_size

Size = str | int | float  # bytes, as a number or as "20GB"


class SessionTable:
    """The budgets of this process: the same limit again is the same session, with its plans."""

    def __init__(self) -> None:
        self.latest: BudgetSession | None = None
        self.whole_process: BudgetSession | None = None  # under which `enable` put every step
        self.process_hooks: list[Any] = []  # the handles of its hooks
        self._by_request: dict[Hashable, BudgetSession] = {}  # by what the caller wrote
        self._by_budget: dict[Hashable, BudgetSession] = {}  # by transfer and bytes
        self._transfers: dict[tuple[torch.device, int | None], Transfer] = {}
        self._making = threading.Lock()

    def find(self, limit: Size, host: Size | None, transfer: Transfer | None) -> BudgetSession:
        """Return the session for a limit; looking for devices takes longer than all else that a step which fits costs,
        so it is looked up by what the caller wrote first.
        """
        request = (limit, host, id(transfer), current_device_index())
        found = self._by_request.get(request)
        if found is None:
            with self._making:  # two threads that ask at once get one session
                found = self._by_request[request] = self._for_budget(limit, host, transfer)
        self.latest = found
        return found

    def _for_budget(self, limit: Size, host: Size | None, transfer: Transfer | None) -> BudgetSession:
        asked = parse_limit(limit)
        transfer = transfer or self._transfer(
            None if host is None else parse_size(host, "host", write="host='80GB'")
        )
        key = (id(transfer), asked)
        if key not in self._by_budget:
            bytes_ = int(transfer.capacity() * DEFAULTS.auto_share) if asked is None else asked
            budget = Budget(transfer, bytes_, DEFAULTS)
            self._by_budget[key] = BudgetSession(budget, smallest_moved(bytes_))
        return self._by_budget[key]

    def _transfer(self, host: int | None) -> Transfer:
        device = current_device()
        if (device, host) not in self._transfers:
            self._transfers[device, host] = transfer_for(device, host)
        return self._transfers[device, host]

    def clear(self) -> None:
        """Drop all sessions, and give back the host memory that no step uses."""
        self.latest = None
        self._by_request.clear()
        self._by_budget.clear()
        for transfer in self._transfers.values():
            release = getattr(transfer, "release", None)
            if release is not None:
                release()
        self._transfers.clear()


# One for the process: `with fit("20GB")` in a loop has no object of its own to keep plans in.
SESSIONS = SessionTable()


def smallest_moved(budget: int) -> int:
    """Return the bytes below which saved tensors stay on the device."""
    tuning = DEFAULTS
    usual = min(tuning.smallest_moved_bytes, budget >> tuning.smallest_moved_shift)
    return max(tuning.smallest_moved_floor_bytes, usual)


@contextmanager
def fit(
    limit: Size = "auto", host: Size | None = None, *, transfer: Transfer | None = None
) -> Iterator[BudgetSession]:
    """Run a forward and a backward pass within `limit` bytes of device memory and `host` bytes of host memory.

    `limit="auto"` is 95 % of what is free. The same limit again is the same budget: its plans are kept. Steps of one
    budget run one after the other, in any thread. After an out-of-memory error the next step leaves more room.
    """
    session = session_for(limit, host, transfer)
    session.begin()
    try:
        yield session
    except BaseException as error:
        session.end(failed=True)
        if isinstance(error, torch.OutOfMemoryError):
            session.leave_more_room()
        raise
    session.end()


def session_for(
    limit: Size = "auto", host: Size | None = None, transfer: Transfer | None = None
) -> BudgetSession:
    """Return the session that `fit` would use."""
    return SESSIONS.find(limit, host, transfer)


def latest() -> BudgetSession:
    """Return the session used last."""
    if SESSIONS.latest is None:
        raise UsageError(
            "large model support must be in use, got none; run a step inside lms.fit(limit=...) first"
        )
    return SESSIONS.latest


def plan() -> Plan:
    """Return the plan of the last shape; its `explain()` tells it in words."""
    return latest().last_plan()


def stats() -> dict[str, int | float]:
    """Return counts and bytes since the start: under the names of IBM's Large Model Support first, then our own.

    `recompute_ms` is that of the last plan; `stall_ms` was measured in the last step that was timed, or is the plan's.
    """
    session = latest()
    budget, planning = session.budget, session.planning
    counts, (held, used) = session.engine.counts, session.transfer.pinned()
    plan = session.last_plan() if planning.shapes.known else None
    planned_s = 0.0 if plan is None else plan.timeline.stall_s
    return {
        "limit": budget.limit,
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
        "called_again": session.blocks.calls,
        "steps": session.steps,
        "recorded": session.recorded,
        "replans": planning.replans,
        "planning_ms": planning.seconds * 1e3,
        "shapes": len(planning.shapes.known),
        "recompute_ms": 0.0 if plan is None else plan.timeline.recipe_s * 1e3,
        "stall_ms": (planned_s if planning.stall_s is None else planning.stall_s) * 1e3,
        "paged_bytes": sum(model.residence.away for model in budget.models),
        "paged_in_bytes": sum(model.bytes_in for model in budget.models),
        "peak": budget.peak,
        "over": budget.over,
    }


def forget() -> None:
    """Drop all budgets and what was learned; pinned memory goes back when nothing uses it."""
    SESSIONS.clear()
