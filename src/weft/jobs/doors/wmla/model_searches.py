"""A model's search: what it takes over from the job that made the model, and what a client changes of it. Pure.

WMLA's model is code that trains, with the weights that it left. Here its weights are the newest version of a name in
the model store, and its code, words and resources are those of the job that this version came from.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.jobs.doors.wmla.arguments import DOOR, WORKER, ArgumentsError
from weft.jobs.doors.wmla.hypersearch import (
    TRIAL,
    AlgorithmDefinition,
    HypersearchRequest,
    parallel_jobs,
    parse_request,
    whole_number,
)
from weft.jobs.doors.wmla.trial import split_words
from weft.jobs.spec.model import JobSpec
from weft.tune.study.config import StudyConfig

MODEL_TAG = "wmla-model"  # of trials: the version whose job they repeat, as NAME@VERSION
_OF_TRIALS = ("WEFT_PARAMS", "WEFT_TRIAL", "WEFT_UNTIL")  # variables of a job that was a trial itself


def parse_model_request(text: bytes) -> HypersearchRequest:
    """Return the search of a model, whose description may leave out `modelSpec`: the model is known."""
    try:
        given = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return parse_request(text)  # which says what is wrong with it
    return parse_request(msgspec.json.encode({"modelSpec": {"args": ""}, **given}))


def script_of(spec: JobSpec) -> tuple[str, ...]:
    """Return the script of a job and its words, without what the door or a study has put before them."""
    words = shlex.split(spec.run) if isinstance(spec.run, str) else list(spec.run)
    if words[:2] == ["-m", WORKER]:
        words = words[2:]
    elif words[:2] == ["-m", TRIAL]:
        words = split_words(words[2:])[1]
    elif words[:1] in (["python"], ["python3"]):
        words = words[1:]
    if not words or not words[0].endswith(".py") or words[0].startswith("/"):
        raise ArgumentsError(
            f"a model must come from a job that runs a script of its code, got {' '.join(words)[:80]!r}; "
            "send modelSpec.args with --exec-start and --model-main"
        )
    return tuple(words)


def job_like(spec: JobSpec, model: str) -> JobSpec:
    """Return the job that trials of a model's search are like."""
    env = {name: value for name, value in spec.env.items() if name not in _OF_TRIALS}
    return msgspec.structs.replace(spec, project=DOOR, tags={"door": DOOR, MODEL_TAG: model}, env=env)


def model_of(config: StudyConfig) -> str:
    """Return the name of the model that a search is of; nothing for another search."""
    return str(config.job.get("tags", {}).get(MODEL_TAG, "")).rpartition("@")[0]


def changes_of(text: bytes, config: StudyConfig) -> dict[str, Any]:
    """Return what an update changes of a study: `maxJobNum`, `maxRunTime` and the number at a time.

    They may stand in `algoDef`, as when a search begins.
    """
    try:
        sent = msgspec.json.decode(text, type=dict[str, Any])
        bounds: Mapping[str, Any] = sent.get("algoDef", sent)
        fixed = {"algorithm": "", "objectiveMetric": "-", "objective": ""}
        given = msgspec.convert({**bounds, **fixed}, AlgorithmDefinition)
    except (msgspec.MsgspecError, TypeError) as error:
        raise ArgumentsError(f"an update must be JSON with maxJobNum, maxRunTime, ..., got {error}") from None
    budget = {name: value for name, value in msgspec.to_builtins(config.budget).items() if value is not None}
    trials, minutes = whole_number(given.jobs, "maxJobNum"), whole_number(given.run_minutes, "maxRunTime")
    if trials > 0:
        budget["trials"] = trials
    if minutes > 0:
        budget["time"] = f"{minutes}m"
    found: dict[str, Any] = {"budget": budget} if trials > 0 or minutes > 0 else {}
    if any(name.startswith("maxParalle") for name in bounds):
        found["parallel"] = parallel_jobs(given)
    if not found:
        raise ArgumentsError(
            "an update must have maxJobNum, maxRunTime or maxParalleJobNum, got none; send one"
        )
    return found
