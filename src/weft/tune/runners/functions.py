"""The back end for Python functions: threads of this process call them, and a lock guards the core.

A paused trial is a call that has ended; when it is promoted, the function is called again, and finds what it saved in
`trial.checkpoint`.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.tune.runners.weights import take_weights
from weft.tune.schedulers.actions import CloneTrial, PauseTrial, ResumeTrial, StopTrial, TrialAction
from weft.tune.schedulers.decide import is_late
from weft.tune.space.domains import Domain
from weft.tune.study.config import StudyError
from weft.tune.study.core import StudyCore
from weft.tune.study.events import TrialBegun, TrialLost
from weft.tune.study.state import TrialRecord
from weft.tune.trial import FunctionTrial, is_pruned

Objective = Callable[[Any], Any]


class FunctionRunner:
    """Calls an objective for each trial of a study, `parallel` at a time."""

    def __init__(
        self,
        core: StudyCore,
        objective: Objective,
        *,
        parallel: int = 1,
        folder: Callable[[int], Path],
        catch: tuple[type[Exception], ...] = (),
        on_change: Callable[[], None] | None = None,
        poll: Callable[[], list[TrialAction]] | None = None,
        on_end: Callable[[TrialRecord], None] | None = None,
        study: Any = None,
    ) -> None:
        self.study = study  # which trials may ask for
        self._core, self._objective, self._parallel = core, objective, parallel
        self._folder, self._catch = folder, catch
        self._on_change = on_change or (lambda: None)
        self._poll, self._on_end = poll, on_end
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._active: set[int] = set()
        self._told: set[int] = set()  # trials whose calls are to end
        self._due: list[tuple[int, int | None]] = []
        self._kept: dict[int, dict[str, Any]] = {}  # of trials that are not over
        self._error: BaseException | None = None
        core.patient, core.forgives = True, bool(catch)

    def run(self) -> None:
        """Run the study until it ends; an error of the objective that is not caught ends it, too."""
        try:
            if self._parallel == 1:
                self._run_here()
            else:
                self._run_in_threads()
        finally:
            self._on_change()
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Let the trials that run go on to their end, and start no other."""
        with self._lock:
            self._core.finishing = True

    def _run_here(self) -> None:
        while (following := self._next()) is not None:
            self._call(*following)
            if self._error is not None:
                return

    def _run_in_threads(self) -> None:
        threads: list[threading.Thread] = []
        try:
            while True:
                with self._lock:
                    while (following := self._next()) is not None:
                        thread = threading.Thread(
                            target=self._call, args=following, name=f"trial-{following[0]}"
                        )
                        threads.append(thread)
                        thread.start()
                    if not self._active:
                        return
                    self._changed.wait(1.0)
                    if self._error is not None:
                        self._told |= self._active
                        return
        except BaseException:
            with self._lock:
                self._told |= self._active
            raise
        finally:
            for thread in threads:
                thread.join()

    def _next(self) -> tuple[int, int | None] | None:
        """Return the trial to call next; None: none now."""
        with self._lock:
            if self._poll is not None:
                self._take(self._poll())
            if self._core.state.state == "running" and self._error is None:
                self._decide()
            if self._core.state.state != "running":
                self._due.clear()
            ready = [one for one in self._due if one[0] not in self._active]
            if not ready or len(self._active) >= self._parallel:
                return None
            self._due.remove(ready[0])
            self._active.add(ready[0][0])
            return ready[0]

    def _decide(self) -> None:
        free = self._parallel - len(self._active) - len(self._due)
        self._take(self._core.actions(free, time.time()))

    def _take(self, actions: list[TrialAction]) -> None:
        for action in actions:
            match action:
                case ResumeTrial(trial=number, until=until):
                    self._due.append((number, until))
                case PauseTrial(trial=number) | StopTrial(trial=number):
                    self._told.add(number)
                case CloneTrial(trial=number, until=until):
                    self._told.add(number)
                    self._due.append((number, until))
        if actions:
            self._on_change()

    # -- one call --------------------------------------------------------------------------------------

    def _call(self, number: int, until: int | None) -> None:
        with self._lock:
            record = self._core.state.trials[number]
            take_weights(record, self._folder)
            if record.parent is not None:
                self._kept.pop(number, None)  # its weights are another's now
            kept = self._kept.setdefault(number, {})
            trial = FunctionTrial(self, number, dict(record.params), until, kept)
            trial.user_attrs |= record.user_attrs
        result, error = None, None
        try:
            result = self._objective(trial)
        except Exception as wrong:
            error = wrong
        except BaseException as wrong:  # Ctrl-C: the trial goes on when the study does
            with self._lock:
                self._error = wrong
                self._core.say(
                    TrialLost(trial=number, message="interrupted", counted=False, at_s=time.time())
                )
                self._leave(number)
            return
        with self._lock:
            try:
                self._ended(number, result, error)
                record = self._core.state.trials[number]
                if record.over and self._on_end is not None and self._error is None:
                    self._on_end(record)
            except BaseException as wrong:
                self._error = self._error or wrong
            self._leave(number)

    def _leave(self, number: int) -> None:
        self._active.discard(number)
        if self._core.state.trials[number].over:
            self._kept.pop(number, None)
        self._told.discard(number)
        self._changed.notify_all()
        self._on_change()

    def _ended(self, number: int, result: Any, error: Exception | None) -> None:
        core, now_s = self._core, time.time()
        state = core.state.trials[number].state
        pending = any(one[0] == number for one in self._due)  # cloned: it is called again
        if error is not None and not is_pruned(error):
            if state == "running" and not pending:
                core.failed(number, _sentence(error), at_s=now_s)
            if not isinstance(error, self._catch):
                self._error = self._error or error
            return
        if pending or state in ("stopped", "failed"):
            return
        if error is not None:
            if state == "running":  # it ends by its own will
                core.stopped(number, "the function ended it", at_s=now_s)
            return
        if state == "paused":
            if number in self._told and result is None:
                return
            core.say(
                TrialBegun(trial=number, until=None, at_s=now_s)
            )  # it went on in spite of all, to its end
        if result is None and not core.state.trials[number].latest:
            core.failed(
                number, f"the function must return {', '.join(core.state.goals)}, got None", at_s=now_s
            )
            return
        core.completed(number, None if result is None else values_of(result, core.state.goals), at_s=now_s)

    # -- what trials call ------------------------------------------------------------------------------

    def draw(self, number: int, name: str, domain: Domain) -> Any:
        with self._lock:
            return self._core.drew(number, name, domain, at_s=time.time())

    def take_report(self, number: int, step: int, values: Mapping[str, float]) -> None:
        with self._lock:
            if self._core.state.trials[number].state != "running":
                return
            goal = self._core.state.goals[0]
            named = {(name or goal): value for name, value in values.items()}
            if self._core.reported(number, step, named, at_s=time.time()):
                self._decide()

    def take_note(self, number: int, attrs: Mapping[str, Any]) -> None:
        with self._lock:
            self._core.noted(number, attrs, at_s=time.time())

    def take_system_note(self, number: int, attrs: Mapping[str, Any]) -> None:
        with self._lock:
            self._core.noted_by_tools(number, attrs, at_s=time.time())

    def take_constraints(self, number: int, values: Mapping[str, float]) -> None:
        with self._lock:
            self._core.constrained(number, values, at_s=time.time())

    def wants_end(self, number: int) -> bool:
        with self._lock:
            state = self._core.state
            state.now_s = max(state.now_s, time.time())
            return number in self._told or state.trials[number].over or is_late(state)

    def folder_of(self, number: int) -> Path:
        found = self._folder(number)
        found.mkdir(parents=True, exist_ok=True)
        return found


def values_of(result: Any, goals: tuple[str, ...]) -> list[float]:
    """Return the values of all metrics from what an objective returned: a number, several, or a mapping."""
    if isinstance(result, Mapping):
        missing = [name for name in goals if name not in result]
        if missing:
            raise StudyError(
                f"an objective must return {', '.join(goals)}, got {', '.join(map(str, result))}; add {missing[0]}"
            )
        return [float(result[name]) for name in goals]
    many = list(result) if isinstance(result, (tuple, list)) else [result]
    try:
        numbers = [float(one) for one in many]
    except (TypeError, ValueError):
        raise StudyError(f"an objective must return numbers, got {result!r}; return the {goals[0]}") from None
    if len(numbers) != len(goals):
        raise StudyError(
            f"an objective must return {len(goals)} values ({', '.join(goals)}), got {len(numbers)}; return all"
        )
    return numbers


def _sentence(error: Exception) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(last[0].filename).name}:{last[0].lineno})" if last else ""
    return f"{type(error).__name__}: {error}{where}"
