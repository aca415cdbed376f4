"""The recorder of this process's collectives: spans from all its groups, as many as there is room for."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns as now
from typing import Any, TextIO

from weft.collectives.members import GroupMember
from weft.collectives.watching.clock import RankClock
from weft.collectives.watching.report import (
    ARRIVALS,
    Figures,
    overlap_of,
    render_report,
    report_of,
    shares_of,
)
from weft.collectives.watching.settings import Watching
from weft.collectives.watching.spans import CALL, Span
from weft.collectives.watching.trace import TracePart

PATIENCE_S = 5.0  # for the figures of the other ranks
_ROOM = 100_000  # spans of one rank
_ROOM_IN_ALL = 1_000_000


class SpanRecorder:
    """Spans, and how many of them were lost."""

    def __init__(self, watching: Watching, world: int) -> None:
        self.watching = watching
        room = max(2000, min(_ROOM, _ROOM_IN_ALL // world))
        self._kept: deque[Span] = deque(maxlen=room if watching.trace else 0)
        self._recent: deque[Span] = deque(maxlen=_ROOM if watching.report else 0)
        self._total = 0
        self._numbers = Counter[str]()
        self.verified = 0
        self.worst_error = 0.0

    def add(self, span: Span) -> None:
        self._kept.append(span)
        self._recent.append(span)
        self._total += 1

    def number(self, group: str) -> int:
        """Return the number of the next call in a group; all its ranks make the same calls."""
        self._numbers[group] += 1
        return self._numbers[group]

    def take_recent(self) -> list[Span]:
        """Return the spans that came since the last call."""
        taken = []
        while self._recent:
            taken.append(self._recent.popleft())
        return taken

    def part(self, rank: int, host: str, clock: RankClock) -> TracePart:
        kept = list(self._kept)
        return TracePart(
            rank=rank,
            host=host,
            spans=kept,
            offset_ns=clock.offset_ns,
            error_ns=clock.error_ns,
            dropped=self._total - len(kept),
        )


@dataclass(frozen=True)
class Home:
    """The group of all ranks, through whose store they tell each other what they saw."""

    store: Any
    rank: int
    members: Sequence[GroupMember]
    clock: RankClock
    run_folder: str = ""  # empty: this run has none
    # As it was when the group was made: torch has another one in its place while it shows an exception.
    stderr: TextIO = field(default_factory=lambda: sys.stderr)

    @property
    def me(self) -> GroupMember:
        return self.members[self.rank]

    def say(self, text: str) -> None:
        self.stderr.write(text + "\n")
        self.stderr.flush()


class Reports:
    """The tables: every rank gives its figures, rank 0 prints."""

    def __init__(self, recorder: SpanRecorder, home: Home) -> None:
        self._recorder, self._home = recorder, home
        self._count = 0
        self._since = now()
        self._printing: threading.Thread | None = None

    def begin(self) -> None:
        """The clock starts with the first call, not with what a program does before."""
        self._since = now()

    def give(self, last_step: int, steps: int) -> None:
        """Say what came since the last time; called on every rank after the same step."""
        self._count += 1
        figures = self._figures(last_step, steps)
        key = f"report/{self._count}"
        self._home.store.set(f"{key}/{self._home.rank}", json.dumps(figures.to_json()))
        if self._home.rank == 0:
            # The others may still be in the step: nobody waits for them here.
            self._printing = threading.Thread(
                target=self._print, args=(key, self._printing), name="weft-report", daemon=True
            )
            self._printing.start()

    def _figures(self, last_step: int, steps: int) -> Figures:
        spans, since = self._recorder.take_recent(), self._since
        self._since = now()
        busy, overlapped = overlap_of(spans)
        calls = [span for span in spans if span.row == CALL and span.number][-ARRIVALS:]
        shift = self._home.clock.offset_ns
        return Figures(
            rank=self._home.rank,
            host=self._home.me.name,
            last_step=last_step,
            steps=steps,
            seconds=(self._since - since) / 1e9,
            dimensions=shares_of(spans),
            under_way_s=busy,
            overlapped_s=overlapped,
            arrivals={f"{span.group}/{span.number}": span.began + shift for span in calls},
            verified=self._recorder.verified,
            worst_error=self._recorder.worst_error,
        )

    def _print(self, key: str, before: threading.Thread | None) -> None:
        store, world = self._home.store, len(self._home.members)
        everyone: dict[int, Figures] = {}
        deadline = time.monotonic() + PATIENCE_S
        try:
            while len(everyone) < world and time.monotonic() < deadline:
                for rank in set(range(world)) - everyone.keys():
                    if store.check([f"{key}/{rank}"]):
                        everyone[rank] = Figures.from_json(json.loads(store.get(f"{key}/{rank}")))
                        store.delete_key(f"{key}/{rank}")
                if len(everyone) < world:
                    time.sleep(0.02)
        except (RuntimeError, OSError):
            pass  # the run is over; what came is worth telling
        if before is not None:
            before.join(PATIENCE_S)  # tables come in order, and whoever waits for the last has seen them all
        if everyone:
            report = report_of([everyone[rank] for rank in sorted(everyone)], world)
            self._home.say(render_report(report))
            _keep(json.dumps(report.to_json()), self._home.run_folder)

    def finish(self, patience_s: float) -> None:
        if self._printing is not None:
            self._printing.join(patience_s)


def _keep(line: str, run_folder: str) -> None:
    """Append a report to the run's own file, where this host has the folder of the run."""
    folder = Path(run_folder)
    if run_folder and folder.is_dir():
        with (folder / "report.jsonl").open("a") as file:
            file.write(line + "\n")
