"""The core of a study: it takes in what trials do, decides, and says what is to be done. No processes, no clocks.

A back end calls `actions` with its free slots, carries them out, and tells of reports and ends. Each event is recorded
before its action is handed out, so that a back end which is killed finds in the journal all that it may have begun.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from weft.text import shorten
from weft.tune.results.acting import OverfittingRule, act_on, due, steered
from weft.tune.samplers.base import Searcher, SearcherFailed, make_searcher, next_suggestion
from weft.tune.schedulers.actions import (
    CloneTrial,
    ExtendTrial,
    PauseTrial,
    ResumeTrial,
    StartTrial,
    StopTrial,
    TrialAction,
    TrialScheduler,
)
from weft.tune.schedulers.decide import decide, needs_decision
from weft.tune.schedulers.population import draw_value
from weft.tune.schedulers.registry import OBJECT, make_rule, make_scheduler
from weft.tune.schedulers.rules import NanRule, StoppingRule
from weft.tune.space.domains import Domain, SpaceError, check_kind, plain_params, plain_value
from weft.tune.space.space import Params
from weft.tune.study.config import StudyConfig, StudyError, check_config, named_options
from weft.tune.study.events import (
    AnyEvent,
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
    as_json_number,
)
from weft.tune.study.state import SearchState, TrialRecord

LARGEST = sys.float_info.max  # JSON has no infinity
Recorder = Callable[[Sequence[AnyEvent]], object]


class StudyCore:
    """One study on whatever runs its trials."""

    def __init__(
        self,
        state: SearchState,
        record: Recorder | None = None,
        *,
        searcher: Searcher | None = None,
        scheduler: TrialScheduler | None = None,
        rule: StoppingRule | None = None,
    ) -> None:
        self.state, self._record = state, record or _nowhere
        config = state.config
        self._searcher = searcher
        self.scheduler = scheduler or make_scheduler(config.schedule)
        given = [one for one in config.stop_if if rule is None or named_options(one, "stop_if")[0] != OBJECT]
        self.rules: tuple[StoppingRule, ...] = (NanRule(), OverfittingRule(), *map(make_rule, given))
        self._given_rule: StoppingRule | None = None
        name = config.schedule if isinstance(config.schedule, str) else config.schedule.get("name")
        known = name in ("none", "asha", "hyperband", "pbt")
        self._watches = bool(config.stop_if) or not known  # each report calls for a decision
        self.use(searcher, rule)
        self._exhausted = False
        self.runs = False  # functions are called by some study of this process
        self.patient = False  # trials that run when the time is over go on to their end
        self.forgives = False  # trials that fail, all of them or not, end no study
        self.finishing = False  # only trials that run go on; with the last of them the study stops

    def use(self, searcher: Searcher | None = None, rule: StoppingRule | None = None) -> None:
        """Take a searcher or a stopping rule that is an object of Python, from now on."""
        self._searcher = searcher or self._searcher
        self.rules = tuple(one for one in self.rules if rule is None or one is not self._given_rule)
        self.rules += () if rule is None else (rule,)
        self._given_rule = rule or self._given_rule
        self._watches = self._watches or rule is not None
        self._hears = getattr(self._searcher, "ended", None)  # objects that hear of ends, and note things
        self._noting: list[Any] = [
            one for one in (self._searcher, self._given_rule) if hasattr(one, "take_noted")
        ]

    @classmethod
    def begin(
        cls, config: StudyConfig, record: Recorder | None = None, *, at_s: float = 0.0, **parts: Any
    ) -> StudyCore:
        """Return the core of a new study."""
        check_config(config)
        state = SearchState()
        event = StudyBegun(config=msgspec.to_builtins(config), at_s=at_s)
        state.apply(event)
        core = cls(state, record, **parts)
        _ = core.searcher  # its options are checked before anything is kept
        core._record([event])
        return core

    def record_in(self, record: Recorder | None, so_far: Sequence[AnyEvent]) -> None:
        """Record all events so far at once, and those to come: a study begins whole or not at all."""
        self._record = record or _nowhere
        self._record(so_far)

    @property
    def _watches_all(self) -> bool:
        return self._watches or bool(self.state.config.act.get("overfitting"))

    @property
    def searcher(self) -> Searcher:
        """The searcher of the study, made when it is first asked."""
        if self._searcher is None:
            self._searcher = make_searcher(self.state.config)
        return self._searcher

    def say(self, *events: AnyEvent) -> None:
        """Record events, then take them in."""
        self._record(events)
        for event in events:
            self.state.apply(event)
            if isinstance(event, TrialEnded) and self._hears is not None:
                self._hears(self.state, self.state.trials[event.trial])
        for one in self._noting:
            for number, (attrs, constraints) in one.take_noted().items():
                self.say(
                    TrialNoted(trial=number, system=attrs, constraints=constraints, at_s=self.state.now_s)
                )

    # -- deciding --------------------------------------------------------------------------------------

    def actions(self, free: int, at_s: float = 0.0) -> list[TrialAction]:
        """Return what is to be done now with so many free slots, recorded; a new trial is a ResumeTrial of its number.

        The end of a study is told by its state.
        """
        state = self.state
        state.now_s = max(state.now_s, at_s)
        if state.state == "running" and due(state):
            self.say(act_on(state, at_s))
        found = decide(
            state,
            self.scheduler,
            free,
            self.rules,
            exhausted=self._exhausted,
            finishing=self.finishing,
            patient=self.patient,
            forgives=self.forgives,
        )
        done: list[TrialAction] = []
        for action in found.actions:
            try:
                made = self._recorded(action, at_s)
            except SearcherFailed as error:
                return [*done, *self._fail(str(error), at_s)]
            if made is not None:
                done.append(made)
        if found.ends is not None:
            self.say(StudyMoved(state=found.ends, message=found.message, at_s=at_s))
        elif self._exhausted and not done and not state.count("running"):
            return self.actions(free, at_s)  # a grid has just come to its end
        return done

    def _fail(self, message: str, at_s: float) -> list[TrialAction]:
        """End a study that cannot go on; trials that run are paused, so that a mended one goes on with them."""
        self.say(StudyMoved(state="failed", message=message, at_s=at_s))
        return self._end_running(TrialPaused, PauseTrial, at_s)

    def _recorded(self, action: TrialAction, at_s: float) -> TrialAction | None:
        match action:
            case StartTrial(until=until, bracket=bracket):
                trial = self.add(bracket=bracket, at_s=at_s)
                if trial is None:
                    return None
                self.say(TrialBegun(trial=trial.number, until=until, at_s=at_s))
                return ResumeTrial(trial.number, until)
            case ResumeTrial(trial=number, until=until):
                self.say(TrialBegun(trial=number, until=until, at_s=at_s))
            case ExtendTrial(trial=number, until=until):
                self.say(TrialExtended(trial=number, until=until, at_s=at_s))
            case PauseTrial(trial=number):
                self.say(TrialPaused(trial=number, at_s=at_s))
            case CloneTrial(trial=number, source=source, params=params, until=until):
                self.say(
                    TrialPaused(trial=number, at_s=at_s),
                    TrialCloned(trial=number, source=source, params=params, at_s=at_s),
                    TrialBegun(trial=number, until=until, at_s=at_s),
                )
            case StopTrial(trial=number, reason=reason, cut=cut):
                self.say(TrialEnded(trial=number, state="stopped", message=reason, cut=cut, at_s=at_s))
        return action

    def add(
        self,
        params: Mapping[str, Any] | None = None,
        *,
        bracket: int = 0,
        source: str = "",
        at_s: float = 0.0,
    ) -> TrialRecord | None:
        """Add a trial, with a point that somebody gives or the searcher suggests; None if it has no further."""
        given = params is not None
        attrs: dict[str, Any] = {}
        if params is None:
            found = next_suggestion(self.searcher, self.state)
            if found is None:
                self._exhausted = True
                return None
            attrs, given = found[0].attrs, found[1]
            point: Params = found[0].params if given else steered(self.state, found[0].params)
            if self.state.space.open and not given:
                point, attrs = {}, {**attrs, "suggested": point}
        elif self.state.space.open:
            point, attrs = {}, {"fixed": plain_params(params)}  # the objective will say what it has
        else:
            point = self.state.space.check_point(params)
        number = self.state.next_number
        self.say(
            TrialAdded(
                trial=number,
                params=point,
                bracket=bracket,
                given=given,
                source=source,
                attrs=attrs,
                at_s=at_s,
            )
        )
        return self.state.trials[number]

    # -- what trials do --------------------------------------------------------------------------------

    def reported(
        self,
        trial: int,
        step: int,
        values: Mapping[str, float],
        *,
        at_s: float = 0.0,
        fresh: bool = True,
    ) -> bool:
        """Take in a report; return whether something is to be decided because of it.

        One that is known already, where a file is read again after a fault and is not `fresh`, changes nothing.
        """
        record = self.state.trials[trial]
        if record.knows(step, values, self.state.goals[0]) and not (fresh and record.begins_again(step)):
            return False
        numbers = {name: as_json_number(float(value)) for name, value in values.items()}
        self.say(TrialReported(trial=trial, step=step, values=numbers, at_s=at_s))
        return self.state.trials[trial].state == "running" and needs_decision(
            self.state, trial, self._watches_all
        )

    def reported_many(
        self,
        trial: int,
        steps: Sequence[int],
        values: Sequence[float],
        *,
        at_s: float = 0.0,
        fresh: bool = True,
    ) -> None:
        """Take in many reports of the first metric, as one event; those that are known already change nothing."""
        record, goal = self.state.trials[trial], self.state.goals[0]
        new = [
            (step, as_json_number(value))
            for step, value in zip(steps, values, strict=True)
            if not record.knows(step, {goal: value}, goal) or (fresh and record.begins_again(step))
        ]
        if new:
            told = TrialCurve(
                trial=trial,
                steps=tuple(one for one, _ in new),
                values=tuple(one for _, one in new),
                at_s=at_s,
            )
            self.say(told)

    def completed(self, trial: int, values: Sequence[float] | None = None, *, at_s: float = 0.0) -> None:
        """Take in that a trial has ended well, with its values or those that it reported last."""
        record = self.state.trials[trial]
        if values is None:
            missing = [name for name in self.state.goals if name not in record.latest]
            if missing:
                self._without_metric(record, missing[0], at_s)
                return
            values = [record.latest[name] for name in self.state.goals]
        kept = tuple(as_json_number(float(value)) for value in values)
        if not all(math.isfinite(float(value)) for value in kept):
            text = f"{self.state.goals[0]} is {kept[0]}: it diverged"
            self.say(TrialEnded(trial=trial, state="stopped", values=kept, message=text, at_s=at_s))
            return
        self.say(TrialEnded(trial=trial, state="completed", values=kept, at_s=at_s))

    def _without_metric(self, record: TrialRecord, name: str, at_s: float) -> None:
        came = ", ".join(sorted(record.latest)) or "nothing"
        text = f"{name} must be reported, got {came}; call weft.log({name}=...), or name one that came"
        self.say(TrialEnded(trial=record.number, state="failed", message=text, at_s=at_s))
        others = [t for t in self.state if t.number != record.number and name in t.latest]
        if not others:
            self.say(StudyMoved(state="failed", message=text, at_s=at_s))
            self._cut_off("the study failed", at_s)

    def segment_done(self, trial: int, *, at_s: float = 0.0) -> None:
        """Take in that a trial's process ended by itself at the limit that it was told."""
        record = self.state.trials[trial]
        missing = [name for name in self.state.goals if name not in record.latest]
        if missing:
            self._without_metric(record, missing[0], at_s)
        elif record.final or record.until is None:
            self.completed(trial, at_s=at_s)
        else:
            self.say(TrialPaused(trial=trial, done=record.until, at_s=at_s))

    def stopped(self, trial: int, message: str, *, at_s: float = 0.0) -> None:
        """Take in that a trial ended early by its own will."""
        self.say(TrialEnded(trial=trial, state="stopped", message=message, at_s=at_s))

    def failed(self, trial: int, message: str, *, at_s: float = 0.0) -> None:
        """Take in that a trial failed by its own fault."""
        self.say(TrialEnded(trial=trial, state="failed", message=message, at_s=at_s))

    def lost(self, trial: int, message: str, *, at_s: float = 0.0) -> None:
        """Take in that a trial's process died; it is started again, but not for ever."""
        if self.state.trials[trial].lost >= self.state.config.retries:
            self.failed(trial, message, at_s=at_s)
        else:
            self.say(TrialLost(trial=trial, message=message, at_s=at_s))

    def interrupted(self, message: str, *, at_s: float = 0.0) -> None:
        """Take in that whatever ran trials was itself killed: all go on from where they were, and none counts twice."""
        if self.state.state == "running":
            self.say(StudyMoved(state="running", message=self.state.message, at_s=at_s))
        for trial in self.state.in_state("running"):
            self.say(TrialLost(trial=trial.number, message=message, counted=False, at_s=at_s))

    def pause_all(self, *, at_s: float = 0.0) -> list[TrialAction]:
        """Pause the study with all its running trials; return what is to be done for that."""
        self.move("paused", "paused on request", at_s=at_s)
        return self._end_running(TrialPaused, PauseTrial, at_s)

    def stop_all(self, message: str = "stopped on request", *, at_s: float = 0.0) -> list[TrialAction]:
        """Stop the study with all its running trials; return what is to be done for that."""
        self.move("stopped", message, at_s=at_s)
        return self._cut_off("the study was stopped", at_s)

    def _cut_off(self, reason: str, at_s: float) -> list[TrialAction]:
        """End all running trials with their study; return what is to be done for that."""
        found = [StopTrial(trial.number, reason, cut=True) for trial in self.state.in_state("running")]
        return [action for one in found if (action := self._recorded(one, at_s)) is not None]

    # -- what somebody wants of one trial ----------------------------------------------------------------

    def find(self, trial: int) -> TrialRecord:
        """Return a trial by number; StudyError if there is none."""
        found = self.state.trials.get(trial)
        if found is None:
            last = self.state.next_number - 1
            known = f"0 to {last}" if last >= 0 else "none yet"
            raise StudyError(f"a trial must exist, got {trial} where there are {known}; see weft study show")
        return found

    def promotion_limit(self, trial: int, until: int | None = None) -> int | None:
        """Return how far a resting trial goes when it is promoted by hand; StudyError if it cannot be."""
        found, resource = self.find(trial), self.state.config.resource
        if found.state not in ("waiting", "paused"):
            raise StudyError(
                f"trial {trial} must be paused or waiting to be promoted, got one that is {found.state}; "
                "see weft study show"
            )
        if until is not None and resource is None:
            raise StudyError(
                "a promotion up to some amount must have a study with a resource, got none; leave it out"
            )
        if resource is not None and until is None:
            following = getattr(self.scheduler, "next_limit", None)
            until = resource.max if following is None else following(self.state, found)
        if resource is not None and until is not None and not found.used < until <= resource.max:
            raise StudyError(
                f"trial {trial} must be promoted to more than {found.used} and at most {resource.max} "
                f"{resource.name}, got {until}; leave it out for the next rung"
            )
        return until

    def promote(self, trial: int, until: int | None = None, *, at_s: float = 0.0) -> None:
        """Let a resting trial go on before all others: to its next rung, or until it has used so much."""
        limit = self.promotion_limit(trial, until)
        self.say(TrialPromoted(trial=trial, until=limit, at_s=at_s))
        if self.state.state == "completed":
            self.move("running", f"trial {trial} was promoted", at_s=at_s)

    def pause_trial(self, trial: int, *, at_s: float = 0.0) -> list[TrialAction]:
        """Pause one trial until somebody promotes it; return what is to be done for that."""
        found = self.need_unfinished(trial, "paused")
        if found.state != "running":
            self.say(TrialHeld(trial=trial, at_s=at_s))
            return []
        self.say(TrialPaused(trial=trial, at_s=at_s), TrialHeld(trial=trial, at_s=at_s))
        return [PauseTrial(trial)]

    def stop_trial(self, trial: int, *, at_s: float = 0.0) -> list[TrialAction]:
        """End one trial for good; return what is to be done for that."""
        found, text = self.need_unfinished(trial, "stopped"), "stopped on request"
        running = found.state == "running"
        self.say(TrialEnded(trial=trial, state="stopped", message=text, at_s=at_s))
        return [StopTrial(trial, text)] if running else []

    def need_unfinished(self, trial: int, what: str) -> TrialRecord:
        """Return a trial that is not over; StudyError if it is."""
        found = self.find(trial)
        if found.over:
            raise StudyError(
                f"trial {trial} must not be over to be {what}, got one that is {found.state}; "
                "add one with its parameters"
            )
        return found

    def _end_running(self, event: Any, action: Any, at_s: float) -> list[TrialAction]:
        done: list[TrialAction] = []
        for trial in self.state.in_state("running"):
            self.say(event(trial=trial.number, at_s=at_s))
            done.append(action(trial.number))
        return done

    def drew(self, trial: int, name: str, domain: Domain, *, at_s: float = 0.0) -> Any:
        """Return the value of a parameter that a running function asks for; the first one to ask names its domain."""
        record = self.state.trials[trial]
        if name in record.params:
            return record.params[name]
        known = self.state.space.domains.get(name)
        if known is not None:
            check_kind(name, known, domain)
        value = self._value_of(record, name, domain, known)
        new = {name: domain.data()} if known != domain else {}
        self.say(TrialDrew(trial=trial, params={name: value}, domains=new, at_s=at_s))
        return value

    def _value_of(self, record: TrialRecord, name: str, domain: Domain, known: Domain | None) -> Any:
        """Return a parameter's value: that of a given point, or what the searcher says, or one at random."""
        if name in record.fixed:
            value = plain_value(record.fixed[name])
            if not domain.contains(value):
                raise SpaceError(
                    f"{name} must be in {domain.text()}, got {shorten(value)} in the point of trial "
                    f"{record.number}; give another value"
                )
            return value
        if hasattr(self.searcher, "draw"):
            return self.searcher.draw(self.state, record.number, name, domain)
        value = record.attrs.get("suggested", {}).get(name)
        if known is not None and domain.contains(value):
            return value
        seed = [self.state.config.seed, record.number, *name.encode()]
        return draw_value(domain, np.random.default_rng(seed))

    def study_noted(self, attrs: Mapping[str, Any], *, at_s: float = 0.0) -> None:
        """Keep what somebody noted about the study; StudyError if JSON cannot hold it."""
        self.say(StudyNoted(attrs=_plain_attrs(attrs, "a study"), at_s=at_s))

    def constrained(self, trial: int, constraints: Mapping[str, float], *, at_s: float = 0.0) -> None:
        """Keep values of a trial that must not be above zero; StudyError if one is no number."""
        try:
            kept = {name: float(value) for name, value in constraints.items()}
        except (TypeError, ValueError):
            kept = {"": math.nan}
        if any(math.isnan(value) for value in kept.values()):
            raise StudyError(
                f"a constraint must be a number, at most 0 where it holds, got {dict(constraints)!r}; "
                "write trial.set_constraint('size', megabytes - 100)"
            )
        within = {name: max(-LARGEST, min(LARGEST, value)) for name, value in kept.items()}
        self.say(TrialNoted(trial=trial, constraints=within, at_s=at_s))

    def noted_by_tools(self, trial: int, attrs: Mapping[str, Any], *, at_s: float = 0.0) -> None:
        """Keep what a tool noted about a trial for itself; StudyError if JSON cannot hold it."""
        self.say(TrialNoted(trial=trial, system=_plain_attrs(attrs, "a trial"), at_s=at_s))

    def noted(self, trial: int, attrs: Mapping[str, Any], *, at_s: float = 0.0) -> None:
        """Keep what somebody noted about a trial; StudyError if JSON cannot hold it."""
        self.say(TrialNoted(trial=trial, attrs=_plain_attrs(attrs, "a trial"), at_s=at_s))

    def move(self, state: str, message: str = "", *, at_s: float = 0.0) -> None:
        """Bring the study to another state, as somebody asked."""
        allowed = {"running": ("paused", "stopped"), "paused": ("running", "stopped")}
        ended = {"stopped": ("running",), "completed": ("running",), "failed": ("running",)}
        if state not in {**allowed, **ended}[self.state.state]:
            raise StudyError(
                f"a study that is {self.state.state} must become one of "
                f"{', '.join({**allowed, **ended}[self.state.state])}, got {state}; see weft study show"
            )
        self.say(StudyMoved(state=state, message=message, at_s=at_s))
        if state == "running":
            self._revive(at_s)

    def _revive(self, at_s: float) -> None:
        """Let the trials that ended with their study go on from where they were."""
        for trial in [one for one in self.state if one.cut]:
            self.say(TrialLost(trial=trial.number, counted=False, at_s=at_s))

    def extend(self, changes: Mapping[str, Any], *, at_s: float = 0.0) -> None:
        """Change the budget, the parallelism or the given points of a study, and let it go on if it had ended."""
        allowed = ("budget", "parallel", "points", "failures", "retries", "act")
        wrong = [name for name in changes if name not in allowed]
        if wrong:
            raise StudyError(
                f"a study must keep its {wrong[0]}, or its trials could not be compared; change "
                f"{', '.join(allowed)}, or clone it with changes"
            )
        merged = {**msgspec.to_builtins(self.state.config), **changes}
        from weft.tune.study.config import convert_config

        config = convert_config(merged)
        check_config(config)
        self.say(StudyBegun(config=msgspec.to_builtins(config), at_s=at_s))
        self._exhausted = False
        if self.state.state in ("completed", "failed"):
            self.move("running", "extended", at_s=at_s)


def _nowhere(events: Sequence[AnyEvent]) -> None:
    """Keep nothing of a study without a folder."""


def _plain_attrs(attrs: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return notes as JSON holds them; StudyError if it cannot."""
    try:
        found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(attrs), enc_hook=_plain))
    except (TypeError, ValueError) as error:
        raise StudyError(
            f"a note about {what} must be what JSON can hold, got {', '.join(attrs)}: {error}; convert it"
        ) from None
    return found


def _plain(value: Any) -> Any:
    """Return a number or an array of another library as Python's own."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    raise TypeError(f"{type(value).__name__} is no number, text, list or mapping")


def replay(events: Iterable[AnyEvent], record: Recorder | None = None, **parts: Any) -> StudyCore:
    """Return the core that a journal's events make."""
    return StudyCore(SearchState.of(events), record, **parts)
