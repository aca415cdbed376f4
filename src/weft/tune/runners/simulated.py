"""A simulated back end: trials follow tabulated curves on a clock of its own, to compare schedulers in seconds.

The curves cross: a large step learns fast and ends high, a small one learns slowly and ends low, so what is best after
a few steps need not be best at the end. All that happens at one moment is reported before anything is decided, in an
order that must not matter.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.tune.schedulers.actions import CloneTrial, ExtendTrial, PauseTrial, ResumeTrial, StopTrial
from weft.tune.study.core import StudyCore
from weft.tune.study.state import SearchState

Curve = Callable[[Mapping[str, Any], int], float]  # parameters and step -> metric
CROSSING_SPACE = {"lr": "log:1e-4:1e-1", "width": "int:16:256:log", "decay": "float:0:1"}


@dataclass(frozen=True)
class CrossingCurves:
    """Curves with known ends: loss = floor + span * step^-rate, plus noise that is the same for the same point.

    The rate grows with lr and falls with width; the floor is lowest at lr = 3e-3 and falls with width. `noise` is the
    standard deviation at the first step; it falls with the square root of the step.
    """

    seed: int = 0
    noise: float = 0.02

    def floor(self, params: Mapping[str, Any]) -> float:
        """Return the loss of a point after endless training."""
        off, wide = math.log10(float(params["lr"])) + 2.5, _width_share(params)
        return 0.1 + 0.12 * off * off + 0.25 * (1 - wide) + 0.1 * (float(params["decay"]) - 0.3) ** 2

    def __call__(self, params: Mapping[str, Any], step: int) -> float:
        rate = 0.35 + 0.2 * (math.log10(float(params["lr"])) + 4) / 3 - 0.1 * _width_share(params)
        places = (abs(hash(round(float(params[name]), 12))) % 2**32 for name in ("lr", "width", "decay"))
        draw = np.random.default_rng([self.seed, step, *places])
        noise = float(draw.standard_normal()) * self.noise / math.sqrt(step)
        floor = self.floor(params)
        return floor + (2.3 - floor) * math.exp(-rate * math.log(step)) + noise

    def step_s(self, params: Mapping[str, Any]) -> float:
        """Return the seconds of one step: wider models take longer."""
        return 0.5 + float(params["width"]) / 256


def _width_share(params: Mapping[str, Any]) -> float:
    """Return where a width lies between 16 and 256, by its logarithm."""
    return math.log(float(params["width"]) / 16) / math.log(16)


@dataclass
class SimulatedRun:
    """The outcome of a simulated study."""

    state: SearchState
    span_s: float
    busy_share: float  # of all slots, until the last trial could be started
    steps: int  # that were trained in all
    best: list[tuple[float, float]] = field(default_factory=list)  # when, and the best final loss by then
    started: tuple[tuple[int, int | None], ...] = ()  # starts in their order: trial, until


class SimulatedStudy:
    """One study on so many simulated slots."""

    def __init__(
        self,
        core: StudyCore,
        curve: Curve,
        *,
        workers: int,
        step_s: Callable[[Mapping[str, Any]], float] = lambda params: 1.0,
        start_s: float = 0.0,
        most_s: float = math.inf,
        shuffle: random.Random | None = None,
    ) -> None:
        self._core, self._curve, self._workers = core, curve, workers
        self._step_s, self._start_s, self._most_s = step_s, start_s, most_s
        self._shuffle = shuffle
        self._now_s = 0.0
        self._heap: list[tuple[float, int, int, int]] = []  # time, trial, its turn, step
        self._turn: dict[int, int] = {}
        self._trained: dict[int, int] = {}  # steps, as its checkpoint has them
        self._busy_s, self._steps = 0.0, 0
        self._started: list[tuple[int, int | None]] = []
        self._best: list[tuple[float, float]] = []

    def run(self) -> SimulatedRun:
        """Run the study to its end, or to the end of the time."""
        core = self._core
        self._decide()
        while self._heap and core.state.state == "running" and self._now_s < self._most_s:
            moment = self._heap[0][0]
            running = core.state.count("running")
            self._busy_s += (min(moment, self._most_s) - self._now_s) * running
            self._now_s = moment
            batch = []
            while self._heap and self._heap[0][0] <= moment + 1e-9:
                batch.append(heapq.heappop(self._heap))
            if self._shuffle is not None:
                self._shuffle.shuffle(batch)
            for _, trial, turn, step in batch:
                if self._turn.get(trial) == turn:
                    self._report(trial, step)
            self._decide()
        span = max(min(self._now_s, self._most_s), 1e-9)
        share = self._busy_s / (span * self._workers)
        return SimulatedRun(core.state, span, share, self._steps, self._best, tuple(self._started))

    def _report(self, number: int, step: int) -> None:
        core, trial = self._core, self._core.state.trials[number]
        value = self._curve(trial.params, step)
        self._trained[number] = step
        self._steps += 1
        core.reported(number, step, {core.state.goals[0]: value}, at_s=self._now_s)
        resource = core.state.config.resource
        if resource is not None and step >= resource.max:
            self._turn[number] += 1
            core.completed(number, at_s=self._now_s)
            best = core.state.best()
            if best is not None:
                self._best.append((self._now_s, best.last_score))
        elif not trial.reached:
            self._plan(number, step + 1)

    def _decide(self) -> None:
        core = self._core
        while True:
            free = self._workers - core.state.count("running")
            actions = core.actions(free, self._now_s)
            if not actions:
                return
            for action in actions:
                self._carry_out(action)

    def _carry_out(self, action: object) -> None:
        match action:
            case ResumeTrial(trial=number, until=until):
                self._started.append((number, until))
                self._plan(number, self._trained.get(number, 0) + 1, self._start_s)
            case ExtendTrial(trial=number):
                self._plan(number, self._trained[number] + 1)
            case PauseTrial(trial=number) | StopTrial(trial=number):
                self._turn[number] = self._turn.get(number, 0) + 1
            case CloneTrial(trial=number):
                self._plan(number, self._trained[number] + 1, self._start_s)

    def _plan(self, number: int, step: int, extra_s: float = 0.0) -> None:
        self._turn[number] = self._turn.get(number, 0) + 1
        due = self._now_s + extra_s + self._step_s(self._core.state.trials[number].params)
        heapq.heappush(self._heap, (due, number, self._turn[number], step))


def tabulate(curves: CrossingCurves, points: Iterable[Mapping[str, Any]], steps: int) -> np.ndarray:
    """Return a table of curves, a row for each point."""
    return np.array([[curves(point, step) for step in range(1, steps + 1)] for point in points])
