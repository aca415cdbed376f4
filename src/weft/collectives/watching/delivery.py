"""The delivery of a trace: its parts come together through the store to rank 0, which writes one file.

Every rank gives its part when its group is destroyed, or when the process ends or is asked to. Who finds no rank 0 any
more writes its part beside the file; who is killed gives nothing, and takes nothing from the others.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft.collectives.groups.blame import _dead
from weft.collectives.watching.recorder import Home, SpanRecorder
from weft.collectives.watching.trace import TracePart, merge
from weft.files import write_whole

PIECE_BYTES = 1 << 20  # of what is put into the store at once, which has a limit


def deliver(recorder: SpanRecorder, home: Home, patience_s: float) -> None:
    """Give our part, or gather everyone's: those that come within the patience, counted from the last one."""
    path = Path(recorder.watching.trace)
    part = recorder.part(home.rank, home.me.name, home.clock)
    world = len(home.members)
    if home.rank == 0:
        parts = {0: part, **_gathered(home, patience_s)}
        home.say(_write(path, merge([*parts.values()], world), set(range(world)) - parts.keys()))
        return
    try:
        _put(home.store, home.rank, part)
    except (RuntimeError, OSError):
        beside = path.with_name(f"{path.stem}.rank-{home.rank}{path.suffix}")
        home.say(_write(beside, merge([part], world), set()))


def _put(store: Any, rank: int, part: TracePart) -> None:
    data = zlib.compress(json.dumps(part.to_json()).encode(), 1)
    pieces = [data[first : first + PIECE_BYTES] for first in range(0, len(data), PIECE_BYTES)]
    for number, piece in enumerate(pieces):
        store.set(f"trace/{rank}/{number}", piece)
    store.set(f"trace/{rank}", str(len(pieces)))
    store.get(f"trace/{rank}")  # it has arrived


def _gathered(home: Home, patience_s: float) -> dict[int, TracePart]:
    parts: dict[int, TracePart] = {}
    deadline = time.monotonic() + patience_s
    try:
        while missing := set(range(1, len(home.members))) - parts.keys():
            came = [rank for rank in missing if home.store.check([f"trace/{rank}"])]
            parts.update({rank: _take(home.store, rank) for rank in came})
            if came:
                deadline = time.monotonic() + patience_s
            elif time.monotonic() > deadline or missing <= {member.rank for member in _dead(home.members, 0)}:
                break
            else:
                time.sleep(0.01)
    except (RuntimeError, OSError):
        pass  # the store is gone; what came is worth keeping
    return parts


def _take(store: Any, rank: int) -> TracePart:
    count = int(store.get(f"trace/{rank}"))
    data = b"".join(store.get(f"trace/{rank}/{number}") for number in range(count))
    for number in range(count):
        store.delete_key(f"trace/{rank}/{number}")
    return TracePart.from_json(json.loads(zlib.decompress(data)))


def _write(path: Path, trace: Mapping[str, Any], missing: set[int]) -> str:
    """Write the file, and return what to say of it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(trace))
    except OSError as error:
        return f"weft: no trace: {path} must be writable, got {error.strerror}; give another --trace"
    count = sum(event["ph"] == "X" for event in trace["traceEvents"])
    lost = f", without rank {', '.join(map(str, sorted(missing)))}" if missing else ""
    dropped = sum(trace["otherData"]["dropped"].values())
    lost += f", the oldest {dropped} dropped" if dropped else ""
    return f"weft: trace of {count} events in {path}{lost}; open it at ui.perfetto.dev"
