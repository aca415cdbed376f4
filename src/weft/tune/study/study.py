"""The study in Python: a space, a metric, and trials by `optimize`, by `run`, or by `ask` and `tell`."""

from __future__ import annotations

import gc
import operator
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from weft.tune.results.export import export
from weft.tune.results.frame import DEFAULT as FRAME_ATTRS
from weft.tune.results.frame import trials_frame
from weft.tune.results.importance import ParameterImportance, importances
from weft.tune.results.insights import StudyInsight, insights
from weft.tune.results.interactions import ParameterInteraction, interactions
from weft.tune.results.models import BestTrial
from weft.tune.runners.functions import FunctionRunner, Objective, values_of
from weft.tune.samplers.base import Searcher
from weft.tune.schedulers.actions import ResumeTrial, TrialAction, TrialScheduler
from weft.tune.space.domains import Domain
from weft.tune.space.space import OPEN, SearchSpace
from weft.tune.study.config import (
    NoPointsLeft,
    StudyBusy,
    StudyConfig,
    StudyError,
    StudyMissing,
    changed_settings,
    check_command,
    convert_config,
    named_options,
)
from weft.tune.study.core import StudyCore, replay
from weft.tune.study.events import AnyEvent, TrialBegun
from weft.tune.study.journal import OpenedStudy, has_begun
from weft.tune.study.objects import NO_OBJECTS, StudyObjects, objects_of
from weft.tune.study.optuna_names import OptunaNames
from weft.tune.study.requests import StudyInbox
from weft.tune.study.state import SearchState, TrialRecord
from weft.tune.study.states import end_named
from weft.tune.study.warm_start import read_distribution, take_over, take_over_table
from weft.tune.trial import FunctionTrial

if TYPE_CHECKING:
    import optuna
    import pandas as pd
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

FINITE = ("grid", "list")  # searches that end by themselves
Metrics = str | Sequence[str]
Number = TypeVar("Number", int, float)


class Study(OptunaNames):
    """A search for good parameters.

    `space` maps names to domains, in objects or text; without one, the objective names parameters by Optuna's
    `trial.suggest_float` and its kind. A study with a `folder` is kept there: made again with the same folder, in this
    process or after a fault, it goes on where it was.
    """

    _runner: FunctionRunner | None = None  # while `optimize` runs
    _opened: OpenedStudy | None

    def __init__(
        self,
        space: SearchSpace | Mapping[str, Any] | None = None,
        objective: Objective | None = None,
        *,
        minimize: Metrics = (),
        maximize: Metrics = (),
        name: str = "study",
        folder: str | Path | None = None,
        search: str | dict[str, Any] | Searcher | BaseSampler = "tpe",
        schedule: str | dict[str, Any] | TrialScheduler | BasePruner = "none",
        resource: Mapping[str, Any] | None = None,
        stop_if: Iterable[str | dict[str, Any]] = (),
        constraints: Iterable[str] = (),
        points: Iterable[Mapping[str, Any]] = (),
        seed: int = 0,
        checkpoints: bool = False,
        warm_start: Study | str | Path | None = None,
        **more: Any,
    ) -> None:
        if not minimize and not maximize:
            minimize = "value"
        made = SearchSpace.of(space, constraints) if space is not None else None
        named, objects = objects_of(search, schedule)
        settings: dict[str, Any] = {
            "space": OPEN if made is None else made.data(),
            "name": name,
            "minimize": _listed(minimize),
            "maximize": _listed(maximize),
            "resource": None if resource is None else dict(resource),
            "constraints": list(made.constraints if made is not None else constraints),
            "points": [dict(point) for point in points],
            "seed": seed,
            "checkpoints": checkpoints,
            **named,
            "stop_if": [*stop_if, *named.get("stop_if", ())],
            **more,
        }
        self._open(convert_config(settings), None if folder is None else Path(folder), warm_start, objects)
        self._objective = objective

    @classmethod
    def from_config(
        cls,
        config: StudyConfig,
        folder: Path | None = None,
        warm_start: Study | str | Path | None = None,
    ) -> Study:
        """Return the study of checked settings, which goes on if its folder has one."""
        study = cls.__new__(cls)
        study._objective = None
        study._open(config, folder, warm_start)
        return study

    @classmethod
    def load(cls, folder: str | Path, *, search: Any = "", schedule: Any = "") -> Study:
        """Return the study of a folder, to go on with it; parts of it that were objects are to be given again."""
        path = Path(folder)
        if not has_begun(path):
            raise StudyMissing(f"a study must be in {path}, got none; see weft studies")
        study = cls.__new__(cls)
        study._objective = None
        study._open(None, path, None, objects_of(search, schedule)[1])
        return study

    def _open(
        self,
        config: StudyConfig | None,
        folder: Path | None,
        warm_start: Study | str | Path | None,
        objects: StudyObjects = NO_OBJECTS,
    ) -> None:
        self._folder, self._opened = folder, None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._asked: dict[int, FunctionTrial] = {}
        events: list[AnyEvent] = []
        record = None
        if folder is not None:
            self._opened = OpenedStudy.of(folder)
            record = self._opened.journal.write
            events = self._opened.journal.read()
        try:
            if self._opened is not None and hasattr(self._opened, "core"):  # by another study of this process
                self._core = self._opened.core
                self._core.use(objects.searcher, objects.rule)
                self._check_unchanged(config)
            elif events:
                self._core = replay(events, record, **objects.parts())
                self._core.interrupted("its study was interrupted", at_s=time.time())
                self._check_unchanged(config)
            else:
                assert config is not None
                made: list[AnyEvent] = []
                self._core = StudyCore.begin(config, made.extend, at_s=time.time(), **objects.parts())
                if warm_start is not None:
                    self._take_over(warm_start)
                self._core.record_in(record, made)
            if self._opened is not None:
                self._opened.core = self._core
        except BaseException:
            self.close()
            raise

    def _check_unchanged(self, config: StudyConfig | None) -> None:
        """Refuse settings that are not those of the trials that exist."""
        if config is None:
            return
        extended = changed_settings(self._core.state.config, config)
        if extended:
            self._core.extend(extended, at_s=time.time())

    def _take_over(self, earlier: Study | str | Path) -> None:
        """Add the ended trials of an earlier study, or of a file, that are points of this space."""
        from weft.tune.results.tables import is_table
        from weft.tune.study.journal import read_events

        if not isinstance(earlier, Study) and is_table(str(earlier)):
            take_over_table(self._core, Path(earlier), time.time())
            return
        state = earlier.state if isinstance(earlier, Study) else SearchState.of(read_events(Path(earlier)))
        take_over(self._core, state, time.time())

    def close(self) -> None:
        """Let another process have the study."""
        if self._opened is not None:
            self._opened.leave()
            self._opened = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def __enter__(self) -> Study:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = self.state
        return f"<Study {state.config.name}: {state.state}, {len(state.trials)} trials>"

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def state(self) -> SearchState:
        """All that is known of the study."""
        return self._core.state

    @property
    def study(self) -> Study:
        """The study itself, as the trials that are asked for it see it."""
        return self

    @property
    def core(self) -> StudyCore:
        """The decisions of the study, for back ends."""
        return self._core

    @property
    def trials(self) -> list[TrialRecord]:
        """All trials by number."""
        return list(self.state)

    @property
    def best(self) -> BestTrial:
        """The best trial so far; `study.best.model.push("digits")` brings what it saved to the model store."""
        found = self.state.best()
        if found is None:
            raise StudyError(
                f"a study must have a trial with {self.state.goals[0]} within its constraints to have a best, "
                "got none; run it first"
            )
        kept = self._folder is not None or self._temporary is not None
        return BestTrial.of(found, self._checkpoints_of(found.number).parent if kept else None)

    best_trial = best

    @property
    def best_params(self) -> dict[str, Any]:
        """Parameters of the best trial."""
        return dict(self.best.params)

    @property
    def best_value(self) -> float:
        """The first metric of the best trial."""
        return self.best.value

    @property
    def front(self) -> list[TrialRecord]:
        """The Pareto front: trials that no other beats in every metric."""
        return self.state.front()

    best_trials = front

    def importances(self) -> list[ParameterImportance]:
        """Return how much each parameter makes of the difference between trials, with confidence."""
        return importances(self.state)

    def interactions(self) -> list[ParameterInteraction]:
        """Return how much of the joint effect of each two parameters is no sum of single ones, with confidence."""
        return interactions(self.state)

    def insights(self) -> list[StudyInsight]:
        """Return what the rules find, with their thresholds."""
        return insights(self.state)

    def export(self, path: str | Path) -> None:
        """Write all trials to a file: .csv, .json or .parquet."""
        export(self.state, Path(path))

    def trials_dataframe(self, attrs: Sequence[str] = FRAME_ATTRS, multi_index: bool = False) -> pd.DataFrame:
        """Return all trials as a frame of pandas with Optuna's columns: `number`, `value`, `params_lr`, `state`."""
        return trials_frame(self.state, attrs, multi_index=multi_index)

    def to_optuna(self, url: str | None = None, name: str | None = None) -> optuna.Study:
        """Return the study as one of Optuna's as it is now: in memory, or added to a storage: `sqlite:///studies.db`."""
        from weft.tune.results.optuna_storages import optuna_study

        return optuna_study(self.state, url, name)

    @classmethod
    def from_optuna(cls, url: str, name: str | None = None) -> Study:
        """Return a study of a storage of Optuna's, with its ended trials."""
        from weft.tune.results.optuna_storages import from_optuna

        study = cls.__new__(cls)
        study._objective, study._folder, study._opened, study._temporary = None, None, None, None
        study._asked, study._core = {}, from_optuna(url, name)
        return study

    # -- running ---------------------------------------------------------------------------------------

    def optimize(
        self,
        objective: Objective | None = None,
        trials: int | None = None,
        *,
        time_s: float | None = None,
        parallel: int | None = None,
        catch: type[Exception] | Iterable[type[Exception]] = (),
        on_change: Callable[[], None] | None = None,
        n_trials: int | None = None,
        timeout: float | None = None,
        n_jobs: int | None = None,
        callbacks: Iterable[Callable[[Study, TrialRecord], None]] | None = None,
        gc_after_trial: bool = False,
        show_progress_bar: bool = False,
    ) -> Study:
        """Call an objective for `trials` further trials, or until the budget is used; return the study.

        The objective gets a trial and returns its metric, several in their order, or a mapping; or it only reports, and
        the last report counts. Errors of the kinds in `catch` fail the trial; others end the call. `n_trials`,
        `timeout` and `n_jobs` are Optuna's names of `trials`, `time_s` and `parallel`. `callbacks` are called, one at
        a time, with the study and each trial that has ended. `gc_after_trial` collects garbage then, and
        `show_progress_bar` writes a line to the standard error.
        """
        found = objective or self._objective
        if self._core.runs:
            raise StudyBusy(
                "optimize must be called once at a time, got a call while another runs; wait, or make a new study"
            )
        if found is None:
            raise StudyError(
                "optimize must have an objective, got none; write study.optimize(train, trials=50)"
            )
        wanted = _either("trials", trials, n_trials)
        if wanted == 0 and not self.state.own:
            return self
        told = tuple(callbacks or ())
        self._extend(
            wanted,
            _either("time_s", time_s, timeout),
            _either("parallel", parallel, _all_cores(n_jobs)),
            ends=bool(told),
        )
        if self.state.state in ("paused", "stopped"):
            self._core.move("running", "resumed", at_s=time.time())
        elif self.state.state == "completed":
            self._core.extend({}, at_s=time.time())

        def tell(trial: TrialRecord) -> None:
            for callback in told:
                callback(self, trial)
            if gc_after_trial:
                gc.collect()
            if show_progress_bar:
                print(self._line(trial), file=sys.stderr, flush=True)

        self._runner = runner = FunctionRunner(
            self._core,
            found,
            parallel=self.state.config.parallel,
            folder=self._checkpoints_of,
            catch=(catch,) if isinstance(catch, type) else tuple(catch),
            on_change=on_change,
            poll=self._inbox(),
            on_end=tell,
            study=self,
        )
        self._core.runs = True
        try:
            runner.run()
        finally:
            self._core.runs = False
            self._runner, self._core.finishing = None, False
            self._core.patient = self._core.forgives = False
        if self.state.state == "failed":
            raise StudyError(f"the study must have trials that work, got: {self.state.message}")
        return self

    def _line(self, trial: TrialRecord) -> str:
        """Return a line about a trial that has ended, and how far the study is."""
        most, best = self.state.config.budget.trials, self.state.best()
        over = f"{len(self.state.over)}{'' if most is None else f' of {most}'} trials"
        found = "" if best is None else f", best {best.last_value:g} of trial {best.number}"
        return f"{over}: trial {trial.number} {trial.state}{found}"

    def stop(self) -> None:
        """Let `optimize` return once the trials that run have ended; an objective or a callback calls it."""
        if self._runner is None:
            raise StudyBusy(
                "stop must be called by an objective or a callback, got a study that does not run"
            )
        self._runner.finish()

    def run(self, *, cwd: str | Path | None = None, on_change: Callable[[], None] | None = None) -> Study:
        """Run the study's command as processes until the budget is used; return the study."""
        from weft.tune.runners.command import check_script
        from weft.tune.runners.scripts import ScriptRunner

        check_command(self.state.config, self.state.space)
        check_script(self.state.config.command, Path() if cwd is None else Path(cwd))
        if self._folder is None:
            raise StudyError(
                "a study of a script must have a folder, got none; write Study(..., folder='studies/a')"
            )
        if self.state.state in ("paused", "stopped"):
            self._core.move("running", "resumed", at_s=time.time())
        runner = ScriptRunner(
            self._core,
            self._folder,
            cwd=None if cwd is None else Path(cwd),
            on_change=on_change,
            poll=self._inbox(),
        )
        try:
            runner.run()
        except KeyboardInterrupt:
            if self.state.state == "running":
                self._core.pause_all(at_s=time.time())
            raise
        return self

    def _extend(self, trials: int | None, time_s: float | None, parallel: int | None, *, ends: bool) -> None:
        changes: dict[str, Any] = {}
        budget: dict[str, Any] = msgspec.to_builtins(self.state.config.budget)
        if trials is not None:
            waiting = len(self.state.interrupted())
            budget["trials"] = max(1, self.state.own - waiting + _whole(trials))
        if time_s is not None:
            budget["time"] = self.state.ran_s(time.time()) + time_s
        if budget != msgspec.to_builtins(self.state.config.budget):
            changes["budget"] = budget
        if parallel is not None and parallel != self.state.config.parallel:
            changes["parallel"] = parallel
        if changes:
            self._core.extend(changes, at_s=time.time())
        config = self.state.config
        ends = (
            ends
            or config.budget != type(config.budget)()
            or named_options(config.search, "search")[0] in FINITE
        )
        if not ends and not getattr(self._core.searcher, "finite", False):
            raise StudyError("a study must have a budget, got none; write trials=50 or time_s=600")

    def _inbox(self) -> Callable[[], list[TrialAction]] | None:
        if self._folder is None:
            return None
        inbox = StudyInbox(self._core, self._folder)
        return lambda: inbox.look(time.time())

    def _checkpoints_of(self, number: int) -> Path:
        if self._folder is None and self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="weft-study-")
        home = self._folder if self._folder is not None else Path(self._temporary.name)  # type: ignore[union-attr]
        return home / "trials" / str(number) / "checkpoints"

    # -- loops of one's own ----------------------------------------------------------------------------

    def add(self, params: Mapping[str, Any]) -> TrialRecord:
        """Add a point that is tried before others are suggested."""
        made = self._core.add(params, at_s=time.time())
        assert made is not None
        return made

    def promote(self, trial: int, until: int | None = None) -> None:
        """Let a paused trial go on before all others, whatever its score: to its next rung, or to `until`."""
        self._core.promote(trial, until, at_s=time.time())

    def pause_trial(self, trial: int) -> None:
        """Pause a trial until somebody promotes it."""
        self._core.pause_trial(trial, at_s=time.time())

    def stop_trial(self, trial: int) -> None:
        """End a trial that is not over."""
        self._core.stop_trial(trial, at_s=time.time())

    def ask(self, fixed_distributions: Mapping[str, Any] | None = None) -> FunctionTrial:
        """Return the next trial, to be told of its value; trials that were added come first.

        `fixed_distributions` are domains or Optuna's distributions of parameters that it has from the start.
        """
        trial = self._asked_trial()
        for name, given in (fixed_distributions or {}).items():
            trial.ask_for(name, read_distribution(given, name))
        return trial

    def _asked_trial(self) -> FunctionTrial:
        waiting = self.state.interrupted()
        record = waiting[0] if waiting else self._core.add(at_s=time.time())
        if record is None:
            raise NoPointsLeft("a study must have points left to ask for one, got none; its grid is done")
        self._core.say(TrialBegun(trial=record.number, until=None, at_s=time.time()))
        return FunctionTrial(self, record.number, dict(record.params), None)

    def tell(
        self,
        trial: FunctionTrial | int,
        value: float | Sequence[float] | Mapping[str, float] | None = None,
        state: Any = None,
        skip_if_finished: bool = False,
        *,
        failed: str | None = None,
    ) -> TrialRecord:
        """Tell the value of a trial, several in their order or by name, or the sentence about its failure.

        `state` is `completed`, `stopped` (Optuna's PRUNED, with its last report) or `failed`. One that has ended is an
        error, unless `skip_if_finished`.
        """
        number = trial if isinstance(trial, int) else trial.number
        record = self.state.trials.get(number)
        if record is not None and record.over and skip_if_finished:
            return record
        if record is None or record.state != "running":
            found = "none" if record is None else f"one that is {record.state}"
            raise StudyError(f"trial {number} must be running to be told of, got {found}; ask for one first")
        ending = "completed" if state is None else end_named(state)
        if failed is not None or ending == "failed":
            self._core.failed(number, failed or "it was told to have failed", at_s=time.time())
        elif ending == "stopped":
            self._core.stopped(number, "it was told to have been stopped", at_s=time.time())
        else:
            values = None if value is None else values_of(value, self.state.goals)
            self._core.completed(number, values, at_s=time.time())
        return record

    # -- what trials that were asked for call ------------------------------------------------------------

    def draw(self, number: int, name: str, domain: Domain) -> Any:
        """Return the value of a parameter that a trial names."""
        return self._core.drew(number, name, domain, at_s=time.time())

    def take_note(self, number: int, attrs: Mapping[str, Any]) -> None:
        """Keep what somebody noted about a trial that was asked for."""
        self._core.noted(number, attrs, at_s=time.time())

    def take_system_note(self, number: int, attrs: Mapping[str, Any]) -> None:
        """Keep what a tool noted for itself about a trial that was asked for."""
        self._core.noted_by_tools(number, attrs, at_s=time.time())

    def take_constraints(self, number: int, values: Mapping[str, float]) -> None:
        """Keep constraints of a trial that was asked for."""
        self._core.constrained(number, values, at_s=time.time())

    def take_report(self, number: int, step: int, values: Mapping[str, float]) -> None:
        """Take in the report of a trial that was asked for."""
        named = {(name or self.state.goals[0]): value for name, value in values.items()}
        self._core.reported(number, step, named, at_s=time.time())

    def wants_end(self, number: int) -> bool:
        """Return whether a rule or the scheduler would end a trial that was asked for."""
        record = self.state.trials[number]
        if record.state != "running":
            return True
        for action in self._core.actions(0, time.time()):
            if getattr(action, "trial", None) == number and not isinstance(action, ResumeTrial):
                return record.state != "running"
        return False

    def folder_of(self, number: int) -> Path:
        """Return the folder for a trial's checkpoints."""
        found = self._checkpoints_of(number)
        found.mkdir(parents=True, exist_ok=True)
        return found


def _listed(given: Metrics) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _whole(trials: int) -> int:
    """Return a number of further trials; none lets those go on that rest, as one that was promoted does."""
    try:
        number = operator.index(trials)
    except TypeError:
        number = -1
    if number < 0:
        raise StudyError(f"trials must be a whole number from 0 on, got {trials!r}; write trials=50")
    return number


def _all_cores(n_jobs: int | None) -> int | None:
    """Return how many trials run at once; Optuna's -1 is as many as there are cores for this process."""
    return len(os.sched_getaffinity(0)) if n_jobs == -1 else n_jobs


def _either(name: str, ours: Number | None, optunas: Number | None) -> Number | None:
    """Return a setting that may be given by our name or by Optuna's."""
    if ours is not None and optunas is not None:
        raise StudyError(
            f"{name} must be given once, got {ours} and, by Optuna's name, {optunas}; remove one"
        )
    return optunas if ours is None else ours
