"""The settings of a study, as study.yaml holds them.

run: train.py --lr {lr} --optimizer {optimizer}
space: {lr: log:1e-5:1e-1, optimizer: [adam, sgd]}
minimize: loss
search: tpe                                  # or {name: tpe, startup: 20}
schedule: asha                               # which trials go on: asha, hyperband, pbt, median, none
resource: {name: epochs, max: 27}            # what a trial is given more of
budget: {trials: 50, time: 2h}
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from weft.documents import Document, fill_model, parse_document
from weft.errors import UsageError
from weft.text import parse_duration
from weft.tune.space.space import SearchSpace

StudyName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Trials = Annotated[int, Meta(ge=1, le=1_000_000)]
Workers = Annotated[int, Meta(ge=1, le=4096)]
Amount = Annotated[float, Meta(gt=0, le=1e12)]
Scalar = str | int | float | bool | list[Any] | None
LARGEST_STEP = 10**12
FIRST_SHARE = 1 / 27  # of a training, before the first look at it
MAY_CHANGE = ("budget", "parallel", "failures", "retries", "act", "points")  # while a study has trials
ACTS = ("edge", "divergence", "no-matter", "overfitting", "plateau")  # insights that may act


class StudyError(UsageError, ValueError):
    """A study that cannot be run as it is written, or cannot go on."""


class StudyMissing(StudyError, KeyError):  # noqa: N818 (what it is)
    """A study that is asked for by name or folder and is not there."""

    __str__ = Exception.__str__  # KeyError would quote it


class StudyBusy(StudyError, RuntimeError):  # noqa: N818 (what it is)
    """A study that runs where it must not, or does not run where it must."""


class NoPointsLeft(StudyError):  # noqa: N818 (what it is)
    """A study that is asked for a trial and has nothing left to try."""


class ResourceRange(Document, frozen=True):
    """The resource that decides how long a trial runs: its name, the least before a first look, and all of it."""

    name: str = "steps"
    min: Annotated[int, Meta(ge=1, le=LARGEST_STEP)] | None = None
    max: Annotated[int, Meta(ge=1, le=LARGEST_STEP)] = 1

    @property
    def first(self) -> int:
        """What a trial uses before it is first compared: unless given, 1/27 of all.

        Where thirds go on, rungs are then at 1/27, 1/9 and 1/3. Where one 27th tells little, 2/27 is better, and where
        it tells much, worse: neither was better on all of three trainings.
        """
        return self.min if self.min is not None else max(1, round(self.max * FIRST_SHARE))


class StudyBudget(Document, frozen=True):
    """The limits of a study; the first that is reached ends it."""

    trials: Trials | None = None
    time: str | float | None = None  # 2h, or seconds
    gpu_hours: Amount | None = None
    no_better_for: Trials | None = None  # trials that ended since the best one
    target: float | None = None  # of the first metric: any report that reaches it ends the study

    @property
    def time_s(self) -> float | None:
        return None if self.time is None else parse_duration(self.time, "budget.time", error=StudyError)


class StudyConfig(Document, frozen=True):
    """One study, as its owner writes it."""

    space: dict[str, Any]
    name: StudyName = "study"
    run: str | tuple[str, ...] | None = None
    constraints: tuple[str, ...] = ()
    minimize: str | tuple[str, ...] = ()
    maximize: str | tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()  # all of them in their order, where it is not first those to be small
    search: str | dict[str, Any] = "tpe"
    schedule: str | dict[str, Any] = "none"
    stop_if: tuple[str | dict[str, Any], ...] = ()
    resource: ResourceRange | None = None
    budget: StudyBudget = StudyBudget()
    parallel: Workers = 1
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    points: tuple[dict[str, Scalar], ...] = ()  # tried first
    retries: Annotated[int, Meta(ge=0, le=100)] = 1  # of a trial whose process died
    failures: Annotated[int, Meta(ge=1, le=10_000)] = 3  # in a row, none before them well, that end the study
    config: str | None = (
        None  # a file whose entries parameters replace; {config} in the command is the new one
    )
    env: dict[str, str] = field(default_factory=dict)
    checkpoints: bool = True  # a paused trial goes on from its checkpoint; without, bad ones are stopped
    gpus: Annotated[float, Meta(ge=0, le=1024)] = 0.0  # of one trial, for GPU-hours; else those of its job
    act: dict[str, bool] = field(default_factory=dict)  # insights that may act: {plateau: true}
    job: dict[str, Any] = field(default_factory=dict)  # fields of job.yaml for trials that are jobs

    @property
    def goals(self) -> dict[str, bool]:
        """Metrics and whether each is to be small, the first of them first."""
        small = {**dict.fromkeys(_names(self.minimize), True), **dict.fromkeys(_names(self.maximize), False)}
        return {name: small[name] for name in self.metrics if name in small} if self.metrics else small

    @property
    def trial_gpus(self) -> float:
        """Accelerators of one trial: as said, or those of its job with all its workers."""
        given = self.job.get("resources")
        each = given.get("gpus", 0) if isinstance(given, dict) else 0
        most = str(self.job.get("workers", 1)).rpartition(":")[2]
        if not (isinstance(each, (int, float)) and most.isdigit()):
            return self.gpus  # a job like that is refused with its own reason
        return max(self.gpus, each * int(most))

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the command."""
        import shlex

        if self.run is None:
            return ()
        try:
            return tuple(shlex.split(self.run)) if isinstance(self.run, str) else self.run
        except ValueError as error:
            raise StudyError(f"run must be a command, got {self.run!r} ({error}); close its quotes") from None


def _names(given: str | tuple[str, ...]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else given


def named_options(given: str | dict[str, Any], what: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the options of `asha` or `{name: asha, eta: 3}`."""
    if isinstance(given, str):
        return given, {}
    options = dict(given)
    name = options.pop("name", None)
    if not isinstance(name, str):
        raise StudyError(
            f"{what} must be a name or a mapping with one, got {given!r}; write {what}: {{name: ...}}"
        )
    return name, options


def check_config(config: StudyConfig) -> SearchSpace:
    """Return the space of a study whose settings can be used; StudyError or SpaceError says what cannot."""
    space = SearchSpace.of_config(config.space, config.constraints)
    both = set(_names(config.minimize)) & set(_names(config.maximize))
    if not config.goals or both or not all(config.goals):
        got = f"{both.pop()} in both" if both else "none"
        raise StudyError(
            f"a study must minimize or maximize a metric, got {got}; write minimize: loss or maximize: accuracy"
        )
    wanted = (*_names(config.minimize), *_names(config.maximize))
    if config.metrics and sorted(config.metrics) != sorted(set(wanted)):
        raise StudyError(
            f"metrics must name all that is minimized or maximized, once, got {', '.join(config.metrics)} for "
            f"{', '.join(wanted)}; leave it out"
        )
    resource = config.resource
    if resource is not None and resource.first > resource.max:
        raise StudyError(
            f"resource.min must be at most resource.max, got {resource.min} and {resource.max}; swap them"
        )
    scheduler, _ = named_options(config.schedule, "schedule")
    if resource is None and scheduler in ("asha", "hyperband", "pbt"):
        raise StudyError(
            f"schedule {scheduler} must know how long a trial runs, got no resource; "
            "write resource: {name: epochs, max: 27}"
        )
    if len(config.goals) > 1 and scheduler not in ("none",):
        raise StudyError(
            f"schedule {scheduler} must have one metric, got {', '.join(config.goals)}; write schedule: none"
        )
    _ = config.budget.time_s
    if config.budget.gpu_hours is not None and not config.trial_gpus:
        raise StudyError(
            "a budget in GPU-hours must have trials with GPUs, got none, so it would never end; write gpus: 1"
        )
    strange = [rule for rule in config.act if rule not in ACTS]
    if strange:
        raise StudyError(
            f"act must name rules among {', '.join(ACTS)}, got {strange[0]}; see weft study show"
        )
    for point in () if space.open else config.points:
        space.check_point(point)
    return space


def changed_settings(old: StudyConfig, new: StudyConfig) -> dict[str, Any]:
    """Return what of a study's settings may change and has; StudyError names one that its trials depend on."""
    before, after = (msgspec.to_builtins(one) for one in (old, new))
    changed = [name for name in after if name not in MAY_CHANGE and before[name] != after[name]]
    if changed:
        raise StudyError(
            f"study {old.name} must keep the settings it began with, got another {changed[0]}; take the change "
            "back, or write another name for a new study (weft study clone)"
        )
    return {n: after[n] for n in MAY_CHANGE if n != "points" and after[n] != before[n]}


def check_command(config: StudyConfig, space: SearchSpace) -> None:
    """Refuse a command that leaves parameters out: the script would never see them."""
    words = config.command
    if not words:
        raise StudyError("a study must have a command to run, got none; write run: train.py --lr {lr}")
    text = " ".join(words)
    whole = any(mark in text for mark in ("{params}", "{config}"))
    missing = [name for name in space.searched if f"{{{name}}}" not in text]
    if missing and not whole and "WEFT_PARAMS" not in config.env:
        raise StudyError(
            f"the command must pass every parameter on, got no {{{missing[0]}}} in {text!r}; "
            f"write --{missing[0]} {{{missing[0]}}}, or {{params}} for a file with all of them"
        )
    if "{config}" in text and config.config is None:
        raise StudyError("{config} must have a file to begin with, got none; write config: base.yaml")


def read_config(path: Path) -> StudyConfig:
    """Return the settings in a YAML, TOML or JSON file."""
    return fill_model(parse_document(path, error=StudyError), StudyConfig, path, error=StudyError)


def convert_config(found: Any) -> StudyConfig:
    """Return the settings in parsed data."""
    from weft.documents import describe_mismatch

    try:
        return msgspec.convert(found, StudyConfig)
    except msgspec.ValidationError as error:
        raise StudyError(f"the study: {describe_mismatch(str(error), StudyConfig)}") from None
