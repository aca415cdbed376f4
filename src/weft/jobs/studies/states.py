"""States of studies for those who look: made from the store's events, and kept up by what has been added since."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.studies.store import events_of
from weft.tune.results.importance import ParameterImportance, importances
from weft.tune.results.interactions import ParameterInteraction, interactions
from weft.tune.study.events import AnyEvent
from weft.tune.study.state import SearchState, TrialRecord

MOST_KEPT = 32
MOST_LENGTHS = 64  # of one curve: whoever asked longer ago gets all of it


@dataclass
class CurveLengths:
    """The lengths of one curve after the events that made it longer, so that an asker gets only what is new."""

    events: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    rewrites: int = 0

    def note(self, event: int, trial: TrialRecord) -> None:
        """Note the curve after an event; one that changed what was there before makes all of it new."""
        if trial.rewrites != self.rewrites:
            self.events, self.lengths, self.rewrites = [], [], trial.rewrites
        self.events.append(event)
        self.lengths.append(len(trial.steps))
        if len(self.events) > 2 * MOST_LENGTHS:
            del self.events[:MOST_LENGTHS], self.lengths[:MOST_LENGTHS]

    def known_at(self, event: int) -> int:
        """Return how many reports a watcher has who saw the study up to an event."""
        index = bisect_right(self.events, event)
        return self.lengths[index - 1] if index else 0


@dataclass
class SeenStudy:
    """One study as it was when it was last asked for."""

    state: SearchState = field(default_factory=SearchState)
    events: int = 0
    changed: dict[int, int] = field(default_factory=dict)  # the number of the last event of each trial
    curves: dict[int, CurveLengths] = field(default_factory=dict)
    shares: tuple[int, tuple[ParameterImportance, ...]] = (
        -1,
        (),
    )  # importances, by how many trials were complete

    pairs: tuple[int, tuple[ParameterInteraction, ...]] = (-1, ())  # interactions, likewise

    def known_reports(self, trial: int, since: int) -> int:
        """Return how many reports of a trial somebody has who asked for the study when it had so many events."""
        return self.curves[trial].known_at(since) if since and trial in self.curves else 0

    def importances(self) -> tuple[ParameterImportance, ...]:
        """Return the importances of parameters, made once for each number of completed trials."""
        count = len(self.state.in_state("completed"))
        if self.shares[0] != count:
            try:
                self.shares = count, tuple(importances(self.state))
            except UsageError:  # too few trials yet
                self.shares = count, ()
        return self.shares[1]

    def interactions(self) -> tuple[ParameterInteraction, ...]:
        """Return the interactions of the most important parameters, made once for each number of completed trials."""
        count = len(self.state.in_state("completed"))
        if self.pairs[0] != count:
            names = tuple(one.name for one in self.importances())
            self.pairs = count, tuple(interactions(self.state, names=names)) if len(names) > 1 else ()
        return self.pairs[1]


class StudyStates:
    """The studies that were looked at last. Its methods are called from one thread of the event loop at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, SeenStudy] = OrderedDict()

    def new_events(self, connection: sa.Connection, study_id: int) -> tuple[int, list[AnyEvent]]:
        """Read the events of a study that are not known yet; `take` takes them in."""
        known = self._kept.get(study_id)
        start = known.events if known is not None else 0
        return start, events_of(connection, study_id, start)

    def take(self, study_id: int, start: int, events: list[AnyEvent]) -> SeenStudy:
        """Take in events that were read, unless another thread has done so."""
        seen = self._kept.setdefault(study_id, SeenStudy())
        self._kept.move_to_end(study_id)
        for number, event in enumerate(events, start):
            if number != seen.events:
                continue
            seen.state.apply(event)
            seen.events += 1
            trial = getattr(event, "trial", None)
            if trial is not None:
                seen.changed[trial] = seen.events
                seen.curves.setdefault(trial, CurveLengths()).note(seen.events, seen.state.trials[trial])
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return seen
