"""The state of a study: its trials and what they reported, made of events alone.

`apply` is the only way to change it. Decisions read it and leave it as it is. Trials are kept by number and curves by
step, so the state, and all that is decided from it, does not depend on the order in which simultaneous reports came.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from weft.tune.space.domains import plain_params
from weft.tune.space.space import SearchSpace
from weft.tune.study.config import StudyConfig, StudyError, convert_config
from weft.tune.study.events import (
    AnyEvent,
    InboxRead,
    StudyActed,
    StudyBegun,
    StudyMoved,
    StudyNoted,
    TrialAdded,
    TrialBegun,
    TrialCloned,
    TrialCurve,
    TrialDrew,
    TrialEnded,
    TrialExtended,
    TrialHeld,
    TrialLost,
    TrialNoted,
    TrialPaused,
    TrialPromoted,
    TrialReported,
    as_number,
)
from weft.tune.study.states import TrialState
from weft.tune.study.suggestions import RepeatedTrial

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

StudyState = Literal["running", "paused", "stopped", "completed", "failed"]
OVER: frozenset[str] = frozenset({"completed", "stopped", "failed"})


@dataclass(slots=True)
class TrialRecord(RepeatedTrial):
    """One trial. `curve` has the first metric by step, as it was reported; scores are small where it is good."""

    number: int
    params: dict[str, Any]
    small: tuple[bool, ...]  # of each metric: whether it is to be small
    bracket: int = 0
    given: bool = False
    source: str = ""
    attrs: dict[str, Any] = field(default_factory=dict)  # of the sampler
    state: TrialState = TrialState.WAITING  # which is text
    until: int | None = None
    steps: list[int] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)
    latest: dict[str, float] = field(default_factory=dict)  # of every metric
    values: tuple[float, ...] | None = None
    message: str = ""
    parent: int | None = None  # whose weights it has
    cloned_at: int = 0  # the step from which on its weights are the parent's
    begun_s: float | None = None
    running_since_s: float | None = None
    ended_s: float | None = None
    run_s: float = 0.0
    starts: int = 0
    lost: int = 0
    version: int = 0
    done: int = 0  # of the resource, as its process said by ending, whatever steps it counts
    final: bool = True  # it may run to its end
    held: bool = False  # somebody paused it: only they let it go on
    cut: bool = False  # it ended because its study did, and goes on if that does
    repeated: bool = False  # it began again at its first step though it had come further
    rewrites: int = 0  # reports that changed what its curve had, or came before its end
    user_attrs: dict[str, Any] = field(default_factory=dict)  # what its objective noted
    constraints: dict[str, float] = field(default_factory=dict)  # values that must not be above zero
    space: SearchSpace | None = field(default=None, repr=False, compare=False)  # what it was drawn from

    @property
    def over(self) -> bool:
        return self.state in OVER

    @property
    def value(self) -> float | None:
        """The first metric of a trial that has ended with one; of one that was ended early, its last report."""
        if self.values is None and self.state == TrialState.PRUNED and self.curve and len(self.small) == 1:
            return self.curve[-1]
        return self.values[0] if self.values is not None else None

    @property
    def fixed(self) -> dict[str, Any]:
        """Parameters that somebody gave where the objective says later what there is."""
        return dict(self.attrs.get("fixed", {}))

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Distributions of Optuna's for the parameters."""
        from weft.tune.space.optuna_domains import distributions_of

        return {} if self.space is None else distributions_of(self.space, self.params)

    @property
    def _trial_id(self) -> int:
        """The number by its private name in Optuna, by which its importances sort."""
        return self.number

    @property
    def system_attrs(self) -> dict[str, Any]:
        """What the search noted about the trial for itself, by its name in Optuna."""
        return dict(self.attrs)

    @property
    def feasible(self) -> bool:
        """Whether it keeps all constraints that its objective has set."""
        return all(value <= 0 for value in self.constraints.values())

    @property
    def step(self) -> int:
        """The last step that was reported, 0 before the first."""
        return self.steps[-1] if self.steps else 0

    last_step = step  # Optuna's words, for programs that come from there

    @property
    def intermediate_values(self) -> dict[int, float]:
        """What was reported of the first metric, by step."""
        return dict(zip(self.steps, self.curve, strict=True))

    @property
    def datetime_start(self) -> datetime | None:
        """When the trial first began, in local time."""
        return None if self.begun_s is None else datetime.fromtimestamp(self.begun_s)

    @property
    def datetime_complete(self) -> datetime | None:
        """When the trial ended, in local time."""
        return None if self.ended_s is None else datetime.fromtimestamp(self.ended_s)

    @property
    def duration(self) -> timedelta | None:
        """The time from the first beginning of a trial to its end, rests included."""
        begun, ended = self.datetime_start, self.datetime_complete
        return None if begun is None or ended is None else ended - begun

    @property
    def reached(self) -> bool:
        """Whether it runs and has come as far as it may for now; to its end it runs by itself."""
        return (
            self.state == "running" and not self.final and self.until is not None and self.used >= self.until
        )

    @property
    def used(self) -> int:
        """How much of the resource it has used."""
        return max(self.step, self.done)

    @property
    def interrupted(self) -> bool:
        """Whether it rests though it was not to: it was never started, lost its process, or was promoted by hand."""
        if self.held:
            return False
        return self.state == "waiting" or (
            self.state == "paused" and (self.until is None or self.used < self.until or self.final)
        )

    def knows(self, step: int, values: Mapping[str, float], goal: str) -> bool:
        """Return whether a report of the first metric is here already, word for word."""
        if goal not in values or not self.steps or step > self.steps[-1]:
            return False
        index = bisect_left(self.steps, step)
        kept, new = self.curve[index], values[goal]
        return self.steps[index] == step and (kept == new or (kept != kept and new != new))

    def begins_again(self, step: int) -> bool:
        """Return whether a new report shows that it began again though it had come further."""
        return self.starts > 1 and len(self.steps) > 1 and step == self.steps[0] and not self.repeated

    def score(self, value: float) -> float:
        """Return a value of the first metric as a score: small is good, and what is no number is worst."""
        if value != value:
            return math.inf
        return value if self.small[0] else -value

    def score_at(self, resource: int) -> float | None:
        """Return the score of the first report at or after a step; None if it has not come so far."""
        index = bisect_left(self.steps, resource)
        if index < len(self.steps):
            return self.score(self.curve[index])
        return self.score(self.curve[-1]) if self.curve and self.done >= resource else None

    def best_until(self, resource: int) -> float:
        """Return the best score up to a step."""
        end = bisect_left(self.steps, resource + 1)
        return min((self.score(value) for value in self.curve[:end]), default=math.inf)

    @property
    def last_value(self) -> float:
        """Return the first metric as it was reported last, or is finally; NaN before the first."""
        return self.score(self.last_score) if self.curve or self.values is not None else math.nan

    @property
    def last_score(self) -> float:
        """Return its final score, or the one of its last report."""
        if self.values is not None:
            return self.score(self.values[0])
        return self.score(self.curve[-1]) if self.curve else math.inf


class SearchState:
    """All that is known of one study."""

    def __init__(self) -> None:
        self.config: StudyConfig
        self.space: SearchSpace
        self.trials: dict[int, TrialRecord] = {}
        self.state: str = "running"
        self.message = ""
        self.begun_s: float | None = None
        self.ended_s: float | None = None
        self.now_s = 0.0
        self.idle_s = 0.0  # in which the study was paused or over, or the process that ran it was gone
        self._idle_since_s: float | None = None
        self.inbox = 0
        self.user_attrs: dict[str, Any] = {}  # what somebody noted about the study
        self.metric_names: tuple[str, ...] = ()  # by which tables of Optuna's kind show the metrics
        self.acts: list[str] = []  # what insights did
        self.acted_at = 0  # trials that were over when they were last asked
        self.fixed: dict[str, Any] = {}
        self.below: dict[str, float] = {}
        self.widened: dict[str, int] = {}
        self.best_report = math.inf  # the best score that any trial of this study ever reported
        self.over: list[int] = []  # in the order of their ends
        self.log: list[int] = []  # the trial of each change, for those who keep an index of trials
        self.own, self.given, self.suggested = (
            0,
            0,
            0,
        )  # trials: not of an earlier study, of these given, not given
        self._wider: dict[str, Any] = {}  # domains that were widened
        self._by_state: dict[str, dict[int, TrialRecord]] = {}
        self._interrupted: dict[int, TrialRecord] = {}
        self._places: dict[int, str] = {}

    @classmethod
    def of(cls, events: Iterable[AnyEvent]) -> SearchState:
        """Return the state that events make."""
        state = cls()
        for event in events:
            state.apply(event)
        return state

    # -- looking ---------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[TrialRecord]:
        """Yield all trials by number."""
        return iter(self.trials.values())

    def in_state(self, *states: str) -> list[TrialRecord]:
        """Return the trials in some states, by number."""
        found = [trial for state in states for trial in self._by_state.get(state, {}).values()]
        return sorted(found, key=_number)

    def resting(self) -> list[TrialRecord]:
        """Return the trials that wait or are paused and that nobody holds, by number."""
        return [trial for trial in self.in_state("waiting", "paused") if not trial.held]

    def count(self, state: str) -> int:
        """Return how many trials are in a state."""
        return len(self._by_state.get(state, ()))

    def interrupted(self) -> list[TrialRecord]:
        """Return the trials that rest though they were not to, by number."""
        return sorted(self._interrupted.values(), key=_number)

    @property
    def next_number(self) -> int:
        return len(self.trials)

    @property
    def goals(self) -> tuple[str, ...]:
        return tuple(self.config.goals)

    def best(self) -> TrialRecord | None:
        """Return the completed trial with the best first metric; of one that is still running if none is complete.

        A trial that breaks a constraint of its objective is none of these.
        """
        for found in (self.in_state("completed"), [t for t in self if t.curve and t.state != "failed"]):
            finite = [trial for trial in found if trial.feasible and math.isfinite(trial.last_score)]
            if finite:
                return min(finite, key=lambda trial: (trial.last_score, trial.number))
        return None

    def front(self) -> list[TrialRecord]:
        """Return the completed trials that no other beats in every metric, by number."""
        found = [t for t in self.in_state("completed") if t.values is not None and t.feasible]
        scores = {t.number: _scores(t) for t in found}
        return [
            one
            for one in found
            if all(map(math.isfinite, scores[one.number]))
            and not any(_beats(scores[other.number], scores[one.number]) for other in found)
        ]

    def gpu_hours(self) -> float:
        """Return the GPU-hours that all trials have used so far."""
        return sum(self.run_s(trial) for trial in self) / 3600 * self.config.trial_gpus

    def run_s(self, trial: TrialRecord) -> float:
        """Return the seconds that a trial has run, this moment included."""
        since = trial.running_since_s
        return trial.run_s + (max(0.0, self.now_s - since) if since is not None else 0.0)

    def ran_s(self, now_s: float) -> float:
        """Return the seconds that the study has run, pauses left out."""
        if self.begun_s is None:
            return 0.0
        until_s = now_s if self._idle_since_s is None else self._idle_since_s
        return max(0.0, until_s - self.begun_s - self.idle_s)

    def since_best(self) -> int:
        """Return how many trials ended since the best one did."""
        best, at = math.inf, -1
        ended = sorted((self.trials[number] for number in self.over), key=lambda t: (t.ended_s, t.number))
        for index, trial in enumerate(ended):
            if trial.state == "completed" and trial.feasible and trial.last_score < best:
                best, at = trial.last_score, index
        return len(self.over) - 1 - at

    # -- changing --------------------------------------------------------------------------------------

    def apply(self, event: AnyEvent) -> None:
        """Take in what happened."""
        before_s, self.now_s = self.now_s, max(self.now_s, event.at_s)
        match event:
            case StudyBegun(config=found):
                self.config = convert_config(found)
                grown = self.space.data() if self.begun_s is not None and self.space.open else {}
                made = SearchSpace.of_config(self.config.space, self.config.constraints)
                self.space = made.grown({**grown, **self._wider})
                self.begun_s = event.at_s if self.begun_s is None else self.begun_s
            case StudyMoved(state=state, message=message):
                ran, self.state, self.message = self.state == "running", state, message
                self.ended_s = event.at_s if state in OVER else None
                if ran and state == "running":
                    self.idle_s += self.now_s - before_s  # whoever ran it was gone
                self._note_idle(event.at_s)
            case StudyActed():
                self._act(event)
            case StudyNoted(attrs=attrs, metric_names=names):
                self.user_attrs.update(attrs)
                self.metric_names = names or self.metric_names
            case InboxRead(position=position):
                self.inbox = position
            case TrialAdded():
                self._add(event)
            case TrialDrew(params=params, domains=domains):
                self.trials[event.trial].params.update(plain_params(params))
                self.trials[event.trial].version += 1
                if domains:
                    self.space = self.space.grown(domains)
                self.trials[event.trial].space = self.space
            case TrialNoted(attrs=attrs, constraints=constraints, system=system):
                noted = self.trials[event.trial]
                noted.user_attrs.update(attrs)
                noted.constraints.update(constraints)
                noted.attrs.update(system)
                noted.version += 1
            case TrialReported():
                values = {name: as_number(value) for name, value in event.values.items()}
                self._report(self.trials[event.trial], event.step, values)
            case TrialCurve():
                self._report_many(self.trials[event.trial], event)
            case _:
                self._move(self.trials[event.trial], event)

    def _note_idle(self, at_s: float) -> None:
        """Count the time in which the study does not run."""
        if self.state != "running":
            self._idle_since_s = at_s if self._idle_since_s is None else self._idle_since_s
        elif self._idle_since_s is not None:
            self.idle_s += max(0.0, at_s - self._idle_since_s)
            self._idle_since_s = None

    def _act(self, event: StudyActed) -> None:
        self.acted_at = len(self.over)
        self.fixed |= event.fixed
        self.below |= event.below
        if event.message:
            self.acts.append(event.message)
        if event.space:
            self._wider |= event.space
            self.space = self.space.grown(event.space)
            for name in event.space:
                self.widened[name] = self.widened.get(name, 0) + 1

    def _add(self, event: TrialAdded) -> None:
        if event.trial != self.next_number:
            raise StudyError(
                f"trials must be numbered in order, got {event.trial} after {self.next_number - 1}; "
                "the journal is damaged"
            )
        trial = TrialRecord(
            event.trial,
            plain_params(event.params),
            tuple(self.config.goals.values()),
            event.bracket,
            event.given,
            event.source,
            dict(event.attrs),
            space=self.space,
        )
        self.trials[event.trial] = trial
        self.own += not event.source
        self.given += event.given and not event.source
        self.suggested += not event.given
        self._touch(trial)

    def _touch(self, trial: TrialRecord) -> None:
        """Keep the indexes of trials by state up to date."""
        self.log.append(trial.number)
        before = self._places.get(trial.number)
        if before != trial.state:
            if before is not None:
                del self._by_state[before][trial.number]
            self._by_state.setdefault(trial.state, {})[trial.number] = trial
            self._places[trial.number] = trial.state
        if trial.interrupted:
            self._interrupted[trial.number] = trial
        else:
            self._interrupted.pop(trial.number, None)

    def _report_many(self, trial: TrialRecord, event: TrialCurve) -> None:
        goal, values = self.goals[0], [as_number(value) for value in event.values]
        before = (trial.step if trial.steps else -math.inf, *event.steps)
        if all(a < b for a, b in pairwise(before)):
            trial.version += 1
            self.log.append(trial.number)
            trial.latest[goal] = values[-1]
            self._note_best(trial, min(map(trial.score, values)))
            trial.steps += event.steps
            trial.curve += values
            return
        for step, value in zip(event.steps, values, strict=True):
            self._report(trial, step, {goal: value})

    def _report(self, trial: TrialRecord, step: int, values: Mapping[str, float]) -> None:
        trial.version += 1
        self.log.append(trial.number)
        trial.latest.update(values)
        goal = self.goals[0]
        if goal not in values:
            return
        self._note_best(trial, trial.score(values[goal]))
        if not trial.steps or step > trial.steps[-1]:
            trial.steps.append(step)
            trial.curve.append(values[goal])
            return
        index = bisect_left(trial.steps, step)
        trial.rewrites += 1
        trial.repeated |= index == 0 and len(trial.steps) > 1
        if trial.steps[index] == step:  # said again, after a start from an older checkpoint
            trial.curve[index] = values[goal]
        else:
            trial.steps.insert(index, step)
            trial.curve.insert(index, values[goal])

    def _move(self, trial: TrialRecord, event: AnyEvent) -> None:
        trial.version += 1
        match event:
            case TrialBegun(until=until):
                trial.state, trial.running_since_s = TrialState.RUNNING, event.at_s
                self._limit(trial, until)
                trial.begun_s = event.at_s if trial.begun_s is None else trial.begun_s
                trial.starts += 1
            case TrialExtended(until=until):
                self._limit(trial, until)
            case TrialPromoted(until=until):
                trial.held = False
                self._limit(trial, until)
            case TrialHeld():
                trial.held = True
            case TrialPaused(done=done):
                self._rest(trial, event.at_s)
                trial.state, trial.done = TrialState.PAUSED, max(trial.done, done)
            case TrialLost(message=message, counted=counted):
                self._rest(trial, event.at_s)
                trial.state = TrialState.PAUSED if trial.steps else TrialState.WAITING
                trial.message = message
                trial.lost += counted
                self._revive(trial)
            case TrialCloned(source=source, params=params):
                trial.params, trial.parent, trial.cloned_at = plain_params(params), source, trial.step
            case TrialEnded():
                self._rest(trial, event.at_s)
                trial.state, trial.message, trial.ended_s = TrialState(event.state), event.message, event.at_s
                trial.cut = event.cut
                if event.values is not None:
                    trial.values = tuple(as_number(value) for value in event.values)
                    self._note_best(trial, trial.last_score)
                self.over.append(trial.number)
        self._touch(trial)

    def _revive(self, trial: TrialRecord) -> None:
        """Let a trial that ended with its study be one that is not over."""
        if trial.cut:
            trial.cut, trial.ended_s = False, None
            self.over.remove(trial.number)

    def _note_best(self, trial: TrialRecord, score: float) -> None:
        if not trial.source:
            self.best_report = min(self.best_report, score)

    @property
    def target_reached(self) -> bool:
        """Whether the target of the budget has been reported."""
        target = self.config.budget.target
        if target is None:
            return False
        small = next(iter(self.config.goals.values()))
        return self.best_report <= (target if small else -target)

    def _limit(self, trial: TrialRecord, until: int | None) -> None:
        resource = self.config.resource
        trial.until = until
        trial.final = until is None or (resource is not None and until >= resource.max)

    def _rest(self, trial: TrialRecord, at_s: float) -> None:
        if trial.running_since_s is not None:
            trial.run_s += max(0.0, at_s - trial.running_since_s)
            trial.running_since_s = None


def _number(trial: TrialRecord) -> int:
    return trial.number


def _scores(trial: TrialRecord) -> tuple[float, ...]:
    assert trial.values is not None
    return tuple(
        math.inf if value != value else value if small else -value
        for value, small in zip(trial.values, trial.small, strict=True)
    )


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
