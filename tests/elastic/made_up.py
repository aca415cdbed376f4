"""A small run directory that no run has made: what its agents would have left, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from weft.elastic.data.order import SampleOrder

ORDER = SampleOrder(
    1437, 64, 8, seed=0, shuffle=True, drop_last=False
)  # 23 steps an epoch, the last of 29 samples
START = 1731666000.0  # seconds since 1970
Line = dict[str, Any]


def header(host: str, **changes: Any) -> Line:
    return {"header": {"run": "digits", "host": host} | ORDER.to_json() | changes}


def record(step: int, view: int, workers: Sequence[str], t: float = 0.0, **changes: Any) -> Line:
    """A step in which workers took turns at the micro-batches."""
    place = ORDER.step(step)
    parts = {name: list(range(n, ORDER.micros(place), len(workers))) for n, name in enumerate(workers)}
    told = {"step": step, "epoch": place.epoch, "start": place.start, "stop": place.stop}
    return {**told, "view": view, "parts": parts, "digest": ORDER.digest(place), "t": START + t} | changes


def event(t: float, host: str, name: str, view: int, **about: Any) -> Line:
    return {"t": round(START + t, 6), "host": host, "event": name, "view": view} | about


def write(run_dir: Path, name: str, lines: Iterable[Line], torn: str = "") -> Path:
    """One file of an agent; `torn` is what a kill has left of its last line."""
    path = run_dir / "elastic" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    return path


# One epoch and most of another: a worker of host a dies, another takes its place, and host b is lost just after it
# alone had committed step 30, so that a has to do that step again.
FOUR, THREE = ("a/0.0", "a/1.0", "b/0.0", "b/1.0"), ("a/0.0", "b/0.0", "b/1.0")
AGAIN, TWO = ("a/0.0", "a/1.1", "b/0.0", "b/1.0"), ("a/0.0", "a/1.1")
# view: (members, steps, time of the first commit)
VIEWS = {
    1: (FOUR, range(12), 1.30),
    2: (THREE, range(12, 20), 2.81),
    3: (AGAIN, range(20, 31), 3.92),
    4: (TWO, range(30, 40), 6.10),
}


def story(run_dir: Path) -> Path:
    """The whole run; the ledger of b ends in the middle of a line."""
    ledgers: dict[str, list[Line]] = {"a": [header("a")], "b": [header("b")]}
    for view, (members, steps, start) in VIEWS.items():
        for index, step in enumerate(steps):
            for host in ("a", "b"):
                only_b = view == 3 and step == 30
                if any(name.startswith(host) for name in members) and not (only_b and host == "a"):
                    ledgers[host].append(record(step, view, members, start + index * 0.1))
    write(run_dir, "a.ledger.jsonl", ledgers["a"])
    write(run_dir, "b.ledger.jsonl", ledgers["b"], torn='{"step": 31, "epoch": 1, "sta')
    write(run_dir, "a.events.jsonl", (line for line in events() if line["host"] == "a"))
    write(run_dir, "b.events.jsonl", (line for line in events() if line["host"] == "b"), torn='{"t": 17316')
    return run_dir


def events() -> list[Line]:
    death, lost = "killed by SIGKILL", "host b does not answer"
    return [
        event(0.0, "a", "detected", 0, kind="start", who=["a/0.0", "a/1.0"], cause="start"),
        event(0.003, "b", "detected", 0, kind="start", who=["b/0.0", "b/1.0"], cause="start"),
        event(0.018, "a", "agreed", 1, cause="start", size=4, members=FOUR),
        event(0.0165, "b", "agreed", 1, cause="start", size=4, members=FOUR),  # its clock is late
        *(event(1.12 + n / 100, name[0], "grouped", 1, worker=name) for n, name in enumerate(FOUR)),
        *(event(1.30, name[0], "stepped", 1, worker=name, step=0) for name in FOUR),
        event(2.487, "b", "detected", 1, kind="broken", who=["b/0.0"], cause="a peer closed the connection"),
        event(2.489, "a", "detected", 1, kind="death", who=["a/1.0"], cause=death),
        event(2.496, "a", "agreed", 2, cause=death, size=3, members=THREE),
        event(2.498, "b", "agreed", 2, cause=death, size=3, members=THREE),
        *(event(2.66 + n / 100, name[0], "grouped", 2, worker=name) for n, name in enumerate(THREE)),
        *(event(2.81, name[0], "stepped", 2, worker=name, step=12) for name in THREE),
        event(3.52, "a", "detected", 2, kind="join", who=["a/1.1"], cause="a/1.1 is ready"),
        event(3.61, "a", "agreed", 3, cause="a/1.1 is ready", size=4, members=AGAIN),
        *(event(3.70 + n / 100, name[0], "grouped", 3, worker=name) for n, name in enumerate(AGAIN)),
        event(3.84, "a", "healed", 3, worker="a/1.1", bytes=44_700_000, seconds=0.11, sources=THREE, step=19),
        *(event(3.92, name[0], "stepped", 3, worker=name, step=20) for name in AGAIN),
        event(4.2, "a", "saved", 3, step=22, seconds=0.2),
        event(4.2, "b", "saved", 3, step=22, seconds=0.2),
        event(4.3, "a", "moon", 3, phase="full"),  # of a later version
        event(5.77, "a", "detected", 3, kind="host", who=["b"], cause=lost),
        event(5.79, "a", "agreed", 4, cause=lost, size=2, members=TWO),
        event(5.95, "a", "grouped", 4, worker="a/0.0"),
        event(5.96, "a", "grouped", 4, worker="a/1.1"),
        event(6.10, "a", "stepped", 4, worker="a/0.0", step=30),
        event(7.05, "a", "finished", 4),
    ]
