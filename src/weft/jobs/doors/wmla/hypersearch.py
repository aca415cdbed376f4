"""A search as clients of WMLA describe it, and the study it means. Pure.

{"hpoName": "cnn", "modelSpec": {"sigName": "s", "args": "--exec-start PyTorch --model-main train.py"},
 "algoDef": {"algorithm": "Tpe", "maxJobNum": 20, "maxParalleJobNum": 2, "objectiveMetric": "loss",
             "objective": "minimize", "algoParams": [{"name": "WarmUp", "value": "5"}]},
 "hyperParams": [{"name": "lr", "type": "Range", "dataType": "double", "minDbVal": -3, "maxDbVal": 0, "power": 10}]}

The misspelt names (`maxParalleJobNum`, `discreateStrVal`) are WMLA's own; the right spelling is taken, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from weft.documents import describe_mismatch
from weft.jobs.doors.wmla.arguments import ArgumentsError, ExecArguments, to_spec
from weft.jobs.spec.model import JobSpec
from weft.jobs.studies.algorithms import INSTALLED
from weft.tune.study.config import StudyConfig, convert_config

TRIAL = "weft.jobs.doors.wmla.trial"  # the module that each worker of a trial runs
ALGORITHMS = {
    "Random": "points drawn at random",
    "Bayesian": "a Gaussian process",
    "Tpe": "the tree-structured Parzen estimator",
    "Hyperband": "brackets of successive halving that begin at different amounts of a resource",
    "ExperimentGridSearch": "the given experiments, one after the other",
}
UNLIMITED = 1_000_000  # trials of a search without a bound
MOST_VALUES = 1000  # of a parameter with steps between powers
_ENDS = ("minDbVal", "maxDbVal", "minIntVal", "maxIntVal")
_LISTS = ("discreteDbVal", "discreteIntVal")
_OF_JOBS = ("workers", "engine", "kubernetes", "resources", "data", "env", "secrets", "project", "tags")
Number = int | float | str  # clients write numbers as text, too
Name = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.-]{0,99}$")]


class HyperParameter(msgspec.Struct, frozen=True):
    """One parameter of a search: a range, or values."""

    name: Name
    type: str
    data_type: str = field(name="dataType")
    min_double: Number | None = field(name="minDbVal", default=None)
    max_double: Number | None = field(name="maxDbVal", default=None)
    min_int: Number | None = field(name="minIntVal", default=None)
    max_int: Number | None = field(name="maxIntVal", default=None)
    doubles: tuple[Number, ...] = field(name="discreteDbVal", default=())
    ints: tuple[Number, ...] = field(name="discreteIntVal", default=())
    misspelt_texts: tuple[str, ...] = field(name="discreateStrVal", default=())
    texts: tuple[str, ...] = field(name="discreteStrVal", default=())
    power: Number | None = None
    step: Number | None = None


class FixedParameter(msgspec.Struct, frozen=True):
    """One parameter of an experiment."""

    name: Name
    value: Number = field(name="fixedVal")
    data_type: str = field(name="dataType", default="str")


class GridPoint(msgspec.Struct, frozen=True):
    """One point of an experiment grid."""

    parameters: tuple[FixedParameter, ...] = field(name="hyperParams")
    id: Number = 0


class AlgorithmOption(msgspec.Struct, frozen=True):
    """One option of an algorithm."""

    name: str
    value: Number | bool


class AlgorithmDefinition(msgspec.Struct, frozen=True):
    """The algorithm of a search, its bounds, and its metric."""

    algorithm: str
    metric: Annotated[str, Meta(min_length=1, max_length=200)] = field(name="objectiveMetric")
    objective: str
    run_minutes: Number = field(name="maxRunTime", default=-1)
    jobs: Number = field(name="maxJobNum", default=-1)
    parallel_jobs: Number | None = field(name="maxParalleJobNum", default=None)
    parallel_short: Number | None = field(name="maxParalleJob", default=None)
    parallel_right: Number | None = field(name="maxParallelJobNum", default=None)
    more_metrics: dict[str, str] = field(name="additionalMetrics", default_factory=dict)
    options: tuple[AlgorithmOption, ...] = field(name="algoParams", default=())


class ModelSpecification(msgspec.Struct, frozen=True):
    """The execution that each trial is."""

    args: str
    sig_name: str = field(name="sigName", default="")


class HypersearchRequest(msgspec.Struct, frozen=True):
    """One search, as its client wrote it."""

    model: ModelSpecification = field(name="modelSpec")
    algorithm: AlgorithmDefinition = field(name="algoDef")
    parameters: tuple[HyperParameter, ...] = field(name="hyperParams", default=())
    experiments: tuple[GridPoint, ...] = ()
    name: str = field(name="hpoName", default="")


def parse_request(text: bytes) -> HypersearchRequest:
    """Return the search in the part `data` of a form."""
    try:
        return msgspec.json.decode(text, type=HypersearchRequest)
    except msgspec.ValidationError as error:
        raise ArgumentsError(f"data: {describe_mismatch(str(error), HypersearchRequest)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ArgumentsError(
            f"data must be JSON, got {error}; send the search as json.dumps writes it"
        ) from None


def to_study(
    given: HypersearchRequest,
    execution: ExecArguments,
    *,
    main: str,
    name: str,
    plugins: Collection[str] = (),
) -> StudyConfig:
    """Return the study of a search; `main` is where its script lies in the code, `plugins` what is installed."""
    script = (main, *execution.script_args)
    return study_of_job(given, to_spec(execution, main=main), script=script, name=name, plugins=plugins)


def study_of_job(
    given: HypersearchRequest,
    spec: JobSpec,
    *,
    script: Sequence[str],
    name: str,
    plugins: Collection[str] = (),
) -> StudyConfig:
    """Return the study of a search whose trials are like a job; `script` is its script with the words for it."""
    wanted = given.algorithm
    small = _one_of(wanted.objective, ("minimize", "maximize"), "objective") == "minimize"
    settings = _search(given, plugins)
    resource = settings.get("resource")
    names = [*settings["space"], *([resource["name"]] if resource else [])]
    job = {key: value for key, value in msgspec.to_builtins(spec).items() if key in _OF_JOBS}
    run = ("-m", TRIAL, *(f"{one}={{{one}}}" for one in names), *script)
    minutes, jobs = _number(wanted.run_minutes, "maxRunTime"), whole_number(wanted.jobs, "maxJobNum")
    trials = jobs if jobs > 0 else len(given.experiments) or UNLIMITED
    budget = {"trials": trials} | ({"time": f"{minutes:g}m"} if minutes > 0 else {})
    return convert_config(
        {
            **settings,
            "name": name,
            "run": run,
            "minimize" if small else "maximize": wanted.metric,
            "budget": budget,
            "parallel": parallel_jobs(wanted),
            "gpus": spec.resources.gpus,
            "job": job,
        }
    )


def parallel_jobs(wanted: AlgorithmDefinition) -> int:
    """Return how many trials may run at a time, in whichever spelling it was sent."""
    spellings = (wanted.parallel_jobs, wanted.parallel_short, wanted.parallel_right)
    return max(1, int(next((_number(one, "maxParalleJobNum") for one in spellings if one is not None), 1)))


def _search(given: HypersearchRequest, plugins: Collection[str]) -> dict[str, Any]:
    """Return the space, the search and the schedule of an algorithm."""
    algorithm = _one_of(given.algorithm.algorithm, (*ALGORITHMS, *plugins), "algorithm")
    options = {one.name: one.value for one in given.algorithm.options}
    listed = algorithm == "ExperimentGridSearch"
    if listed != bool(given.experiments) or listed == bool(given.parameters):
        must = "experiments alone" if listed else "hyperParams alone"
        raise ArgumentsError(f"{algorithm} must have {must}, got others; send {must.split()[0]}")
    if listed:
        return _of_experiments(given.experiments)
    names = [one.name for one in given.parameters]
    if len({*names}) < len(names):
        raise ArgumentsError("hyperParams must have each name once, got one twice; remove it")
    settings: dict[str, Any] = {"space": {one.name: domain(one) for one in given.parameters}}
    if "RandomSeed" in options:
        settings["seed"] = abs(int(_number(options["RandomSeed"], "RandomSeed")))
    if algorithm not in ALGORITHMS:
        return settings | _plugin(algorithm, given.parameters, options)
    return settings | _algorithm(algorithm, options)


def _plugin(
    algorithm: str, parameters: Sequence[HyperParameter], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the search of an installed algorithm, which reads parameters in WMLA's words, kinds in capitals."""
    described = []
    for one in parameters:
        found = {key: value for key, value in msgspec.to_builtins(one).items() if value not in (None, [], ())}
        kind = one.data_type.lower()
        numbers = {key: _typed(found[key], kind, one.name) for key in _ENDS if key in found}
        listed = {key: [_typed(v, kind, one.name) for v in found[key]] for key in _LISTS if key in found}
        shape = "Range" if one.type.lower() == "range" else "Discrete"
        described.append({**found, **numbers, **listed, "type": shape, "dataType": kind.upper()})
    texts = {name: str(value) for name, value in options.items()}
    return {"search": {"name": INSTALLED, "algorithm": algorithm, "parameters": described, "options": texts}}


def _algorithm(algorithm: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return our search and schedule for an algorithm with its options; those without a meaning here are left out."""
    if algorithm == "Tpe":
        startup = int(_number(options.get("WarmUp", 20), "WarmUp"))
        candidates = int(_number(options.get("EICandidate", 24), "EICandidate"))
        return {"search": {"name": "tpe", "startup": startup, "candidates": candidates}}
    if algorithm == "Bayesian":
        startup = int(_number(options.get("InitPoints", 10), "InitPoints"))
        noiseless = str(options.get("Noiseless", True)).lower() == "true"
        return {"search": {"name": "gp", "startup": startup, "noiseless": noiseless}}
    if algorithm == "Hyperband":
        missing = [name for name in ("ResourceName", "ResourceValue") if name not in options]
        if missing:
            raise ArgumentsError(
                f"Hyperband must know how long a training is, got no {missing[0]}; add it to algoParams"
            )
        resource = str(options["ResourceName"]), int(_number(options["ResourceValue"], "ResourceValue"))
        eta = _number(options.get("eta", 3), "eta")
        return {
            "search": "random",
            "schedule": {"name": "hyperband", "eta": eta},
            "resource": {"name": resource[0], "min": 1, "max": resource[1]},
        }
    return {"search": "random"}


def _of_experiments(experiments: Sequence[GridPoint]) -> dict[str, Any]:
    points = [
        {one.name: _typed(one.value, one.data_type, one.name) for one in experiment.parameters}
        for experiment in experiments
    ]
    if any(point.keys() != points[0].keys() for point in points):
        raise ArgumentsError(
            "experiments must all have the same hyperParams, got others; add what is missing"
        )
    space = {name: list(dict.fromkeys(point[name] for point in points)) for name in points[0]}
    return {"space": space, "search": "list", "points": points}


def domain(one: HyperParameter) -> Any:
    """Return the domain of a parameter, as a study's file has it."""
    kind = _one_of(one.data_type, ("int", "double", "str"), f"dataType of {one.name}")
    shape = _one_of(one.type, ("Range", "Discrete"), f"type of {one.name}")
    if shape == "Discrete":
        listed: Sequence[Any] = {"int": one.ints, "double": one.doubles}.get(
            kind, one.misspelt_texts or one.texts
        )
        if not listed:
            raise ArgumentsError(f"{one.name} must have values, got none; send them in discrete...Val")
        return [_typed(value, kind, one.name) for value in listed]
    if kind == "str":
        raise ArgumentsError(
            f"{one.name} must be int or double to have a range, got str; write type Discrete"
        )
    low, high = (one.min_int, one.max_int) if kind == "int" else (one.min_double, one.max_double)
    if low is None or high is None:
        raise ArgumentsError(f"{one.name} must have the ends of its range, got not both; send min and max")
    least, most = _number(low, one.name), _number(high, one.name)
    step = None if one.step is None else _number(one.step, one.name)
    if one.power is not None:
        return _powers(one.name, _number(one.power, one.name), least, most, step, kind)
    rest = "" if step is None else f":{int(step) if kind == 'int' else step!r}"
    ends = f"{int(least)}:{int(most)}" if kind == "int" else f"{least!r}:{most!r}"
    return f"{'int' if kind == 'int' else 'float'}:{ends}{rest}"


def _powers(name: str, base: float, least: float, most: float, step: float | None, kind: str) -> Any:
    """Return the domain of base^x for x in a range: searched by the logarithm, or the powers at each step."""
    if base <= 1 or abs(least) > 300 or abs(most) > 300 or least >= most:
        raise ArgumentsError(
            f"{name} must have a power above 1 and exponents from small to large, got {base:g} and "
            f"{least:g} to {most:g}; mend them"
        )
    if step is None and kind == "double":
        return f"log:{base**least!r}:{base**most!r}"
    count = math.floor((most - least) / (step or 1) + 1e-9) + 1
    if (step or 1) <= 0 or count > MOST_VALUES:
        raise ArgumentsError(f"{name} must have at most {MOST_VALUES} steps, got more; take larger ones")
    values = [base ** (least + index * (step or 1)) for index in range(count)]
    return [round(value) for value in values] if kind == "int" else values


def _typed(value: Any, kind: str, name: str) -> Any:
    if kind.lower() == "str":
        return str(value)
    number = _number(value, name)
    return int(number) if kind.lower() == "int" else number


def _number(value: Any, name: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found) or abs(found) > 1e300:
        raise ArgumentsError(f"{name} must be a number, got {str(value)[:40]!r}; send one")
    return found


def whole_number(value: Any, name: str) -> int:
    """Return a number that may have been sent as text."""
    return int(_number(value, name))


def _one_of(given: str, known: tuple[str, ...], what: str) -> str:
    found = next((one for one in known if one.lower() == given.lower()), None)
    if found is None:
        raise ArgumentsError(f"{what} must be one of {', '.join(known)}, got {given[:40]!r}")
    return found
