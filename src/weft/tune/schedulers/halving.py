"""ASHA and Hyperband that pause and promote: a trial is paused at a rung, and the best of each rung go on.

Rungs are at min, min*eta, min*eta^2, ... of the resource. Of the trials that ever reached a rung, the best 1/eta may go
on to the next; whenever a slot is free, the highest rung with such a trial gets it, and if there is none a new trial
starts at the bottom. No slot ever waits for a rung to fill. A trial that reaches a rung and is to go on at once is not
paused at all. Hyperband runs several such brackets, which begin at different rungs, for curves that cross.

Without checkpoints there is nothing to go on from, so a trial that is not among the best at its rung is stopped.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from weft.tune.schedulers.actions import (
    ExtendTrial,
    PauseTrial,
    ResumeTrial,
    StartTrial,
    StopTrial,
    TrialAction,
)
from weft.tune.study.config import StudyError
from weft.tune.study.state import SearchState, TrialRecord


def rungs(least: int, most: int, eta: float) -> tuple[int, ...]:
    """Return the resources at which trials are compared, the last of them all of it."""
    found: list[int] = []
    level = float(least)
    while level < most:
        if not found or round(level) > found[-1]:
            found.append(round(level))
        level *= eta
    return (*(rung for rung in found if rung < most), most)


def bracket_pattern(levels: int, eta: float) -> tuple[int, ...]:
    """Return Hyperband's brackets of successive trials: n_s = ceil((s_max + 1) / (s + 1) * eta^s), the longest first.

    Bracket b begins at rung b, so that s = s_max - b.
    """
    top = levels - 1
    pattern: list[int] = []
    for s in range(top, -1, -1):
        pattern += [top - s] * math.ceil((top + 1) / (s + 1) * eta**s)
    return tuple(pattern)


class Asha:
    """Asynchronous successive halving with promotion from checkpoints."""

    def __init__(self, eta: float = 3.0, brackets: int = 1) -> None:
        if not (isinstance(eta, (int, float)) and 1.5 <= eta <= 100):
            raise StudyError(f"eta must be between 1.5 and 100, got {eta!r}; write eta: 3")
        if not (isinstance(brackets, int) and 1 <= brackets <= 20):
            raise StudyError(f"brackets must be a whole number between 1 and 20, got {brackets!r}; write 1")
        self.eta, self.brackets = float(eta), brackets
        self._index: RungIndex | None = None  # of the state that was decided on last: it only saves time

    def pattern(self, levels: int) -> tuple[int, ...]:
        """Return the brackets of successive trials, again and again."""
        return bracket_pattern(min(self.brackets, levels), self.eta)

    def next_limit(self, state: SearchState, trial: TrialRecord) -> int:
        """Return the rung above what a trial has used: where a promotion by hand ends."""
        resource = state.config.resource
        assert resource is not None
        levels = rungs(resource.first, resource.max, self.eta)
        return next((level for level in levels if level > trial.used), levels[-1])

    def decide(self, state: SearchState, free: int, starts: int) -> Sequence[TrialAction]:
        resource = state.config.resource
        assert resource is not None
        levels = rungs(resource.first, resource.max, self.eta)
        if self._index is None or self._index.state is not state or self._index.levels != levels:
            self._index = RungIndex(state, levels)
        self._index.update()
        return _Halving(self._index, self.eta, self.pattern(len(levels))).decide(free, starts)


class Hyperband(Asha):
    """Brackets of successive halving that begin at different rungs."""

    def __init__(self, eta: float = 3.0, brackets: int = 20) -> None:
        super().__init__(eta, brackets)


class RungIndex:
    """The scores of all trials at all rungs in order, kept up with changes: a decision then looks at few trials."""

    def __init__(self, state: SearchState, levels: tuple[int, ...]) -> None:
        self.state, self.levels = state, levels
        self._seen = 0  # changes
        self._known: dict[tuple[int, int], float] = {}  # scores, by trial and level
        self._scores: dict[tuple[int, int], list[tuple[float, int]]] = {}  # in order, by bracket and level
        self._held: dict[
            tuple[int, int], list[tuple[float, int]]
        ] = {}  # heaps of trials that may go on from a level
        self._brackets: set[int] = set()

    def update(self) -> None:
        """Take in what has changed since."""
        log = self.state.log
        for number in dict.fromkeys(log[self._seen :]):
            self._take(self.state.trials[number])
        self._seen = len(log)

    def _take(self, trial: TrialRecord) -> None:
        self._brackets.add(trial.bracket)
        for level, rung in enumerate(self.levels):
            score = trial.score_at(rung)
            if score is None:
                break
            before = self._known.get((trial.number, level))
            if before != score:
                ordered = self._scores.setdefault((trial.bracket, level), [])
                if before is not None:
                    ordered.remove((before, trial.number))
                insort(ordered, (score, trial.number))
                self._known[trial.number, level] = score
            if self._waits(trial, level):
                heappush(self._held.setdefault((trial.bracket, level), []), (score, trial.number))

    def _waits(self, trial: TrialRecord, level: int) -> bool:
        """Return whether a trial has come to a rung, and may go on from there."""
        return trial.until == self.levels[level] and (
            (trial.state == "paused" and not trial.held) or trial.reached
        )

    def scores(self, bracket: int, level: int) -> list[tuple[float, int]]:
        """Return the scores and numbers of the trials of a bracket that reached a rung, the best first."""
        return self._scores.get((bracket, level), [])

    def promotions(self, eta: float) -> Iterator[tuple[TrialRecord, int]]:
        """Yield the trials that may go on, those of the highest rung first, the best first, and how far."""
        for level in range(len(self.levels) - 2, -1, -1):
            for bracket in sorted(self._brackets):
                yield from self._of_rung(bracket, level, eta)

    def _of_rung(self, bracket: int, level: int, eta: float) -> Iterator[tuple[TrialRecord, int]]:
        held, ordered = self._held.get((bracket, level), []), self.scores(bracket, level)
        allowed, given = int(len(ordered) / eta), set()
        try:
            while held:
                score, number = held[0]
                fits = self._waits(self.state.trials[number], level) and self._known[number, level] == score
                if not fits or held[0] in given:
                    heappop(held)
                    continue
                if not math.isfinite(score) or bisect_left(ordered, (score, number)) >= allowed:
                    return
                given.add(heappop(held))
                yield self.state.trials[number], self.levels[level + 1]
        finally:
            for one in given:  # whoever asks again without having acted gets the same answer
                heappush(held, one)


class _Halving:
    """One decision."""

    def __init__(self, index: RungIndex, eta: float, pattern: tuple[int, ...]) -> None:
        self._index, self._eta, self._pattern = index, eta, pattern
        self._state, self._levels = index.state, index.levels
        self._pauses = self._state.config.checkpoints

    def decide(self, free: int, starts: int) -> list[TrialAction]:
        state = self._state
        reached = [trial for trial in state.in_state("running") if trial.reached]
        if not self._pauses:
            return self._stopping(reached, free, starts)
        actions: list[TrialAction] = []
        slots = free + len(reached)  # those at their limit give theirs to whoever deserves it most
        waiting = state.interrupted()
        promotions = self._index.promotions(self._eta)
        kept: set[int] = set()
        number = state.next_number
        while slots:
            if waiting:
                actions.append(self._resume(waiting.pop(0)))
            elif (found := next(promotions, None)) is not None:
                trial, until = found
                if trial.state == "running":
                    kept.add(trial.number)
                    actions.append(ExtendTrial(trial.number, until))
                else:
                    actions.append(ResumeTrial(trial.number, until))
            elif starts:
                bracket = self._pattern[number % len(self._pattern)]
                actions.append(StartTrial(self._first(bracket), bracket))
                number, starts = number + 1, starts - 1
            else:
                break
            slots -= 1
        if not actions and len(reached) == state.count("running"):
            actions += self._last(reached)
            kept |= {one.trial for one in actions if isinstance(one, ExtendTrial)}
        # Pauses come first: they make the room.
        return [*(PauseTrial(t.number) for t in reached if t.number not in kept), *actions]

    def _last(self, reached: list[TrialRecord]) -> list[TrialAction]:
        """Let the best of the highest rung go on where all would end with no trial complete."""
        state = self._state
        held = [
            t for t in (*state.in_state("paused"), *reached) if math.isfinite(t.last_score) and not t.held
        ]
        if not held or state.count("completed"):
            return []
        best = min(held, key=lambda t: (-t.used, t.last_score, t.number))
        until = next((level for level in self._levels if level > best.used), self._levels[-1])
        return [(ExtendTrial if best.state == "running" else ResumeTrial)(best.number, until)]

    def _resume(self, trial: TrialRecord) -> ResumeTrial:
        return ResumeTrial(trial.number, trial.until or self._first(trial.bracket))

    def _first(self, bracket: int) -> int:
        return self._levels[min(bracket, len(self._levels) - 1)]

    def _stopping(self, reached: list[TrialRecord], free: int, starts: int) -> list[TrialAction]:
        """Decide where nothing can be paused: go on or stop, at the moment a rung is reached."""
        actions: list[TrialAction] = []
        for trial in reached:
            level = self._levels.index(trial.until) if trial.until in self._levels else len(self._levels) - 1
            if self._is_good(trial, level):
                actions.append(ExtendTrial(trial.number, self._levels[min(level + 1, len(self._levels) - 1)]))
            else:
                text = f"not among the best 1/{self._eta:g} at {trial.until}"
                actions.append(StopTrial(trial.number, text))
                free += 1
        waiting = self._state.resting()[:free]
        actions += map(self._resume, waiting)
        for number in range(
            self._state.next_number, self._state.next_number + min(free - len(waiting), starts)
        ):
            bracket = self._pattern[number % len(self._pattern)]
            actions.append(StartTrial(self._first(bracket), bracket))
        return actions

    def _is_good(self, trial: TrialRecord, level: int) -> bool:
        """Return whether a trial is among the best 1/eta of its rung; the first ones there are."""
        mine, ordered = trial.score_at(self._levels[level]), self._index.scores(trial.bracket, level)
        allowed = max(1, int(len(ordered) / self._eta))
        return mine is not None and math.isfinite(mine) and mine <= ordered[allowed - 1][0]
