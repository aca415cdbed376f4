"""The jobs of trials: a study's command and settings as specifications, and what follows from a job's state. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weft.jobs.lifecycle import ACTIVE, ENDED
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import convert_spec
from weft.jobs.store.jobs import StoredJob
from weft.jobs.studies.store import TrialJob
from weft.tune.runners.command import ends_at_limit, limit_of, trial_words, variables
from weft.tune.space.domains import scalar_params
from weft.tune.study.config import StudyConfig, StudyError, check_command, check_config
from weft.tune.study.state import TrialRecord

# To do with a trial's job: submit one, run it again with other words, let it go on, pause, hold, stop it; or wait.
JobStep = Literal["submit", "retry", "resume", "release", "pause", "hold", "stop", "told", "wait", "none"]


PRINTED = {"kind": "output"}  # lines of JSON that a script prints are reports


def check_for_jobs(config: StudyConfig) -> None:
    """Refuse settings that jobs cannot have."""
    space = check_config(config)
    check_command(config, space)
    words = " ".join(config.command)
    for mark in ("{params}", "{config}"):
        if mark in words:
            raise StudyError(
                f"{mark} must be a file on this machine, got a study of the service; pass flags, or read "
                "weft.tune.params() in the script"
            )
    if config.budget == type(config.budget)() and config.search not in ("grid", "list"):
        raise StudyError("a study must have a budget, got none; write budget: {trials: 50}")
    if "run" in config.job or "array" in config.job or "schedule" in config.job:
        raise StudyError("job must not have run, array or schedule, got one; write run: beside space:")


def trial_spec(config: StudyConfig, trial: TrialRecord, *, study_id: int) -> JobSpec:
    """Return the specification of a trial's job."""
    job: dict[str, Any] = dict(config.job)
    shown = {name: str(value) for name, value in scalar_params(trial.params).items() if _is_name(name)}
    job["run"] = trial_words(config, trial, {})
    job["name"] = f"{config.name}-{trial.number}"[:100]
    job["env"] = {**variables(config, trial), **job.get("env", {})}
    job["tags"] = {**job.get("tags", {}), "study": str(study_id), "trial": str(trial.number), **shown}
    job["metrics"] = [PRINTED, *(one for one in job.get("metrics", ()) if one != PRINTED)]
    queue = {"priority": 40, **job.get("queue", {})}  # beside jobs of people who wait for them
    return convert_spec({**job, "queue": queue})


def _is_name(name: str) -> bool:
    return name[:1].isalnum() and all(c.isalnum() or c in "._-" for c in name)


def next_step(
    config: StudyConfig, trial: TrialRecord, told: TrialJob | None, job: StoredJob | None
) -> JobStep:
    """Return what brings the job of a trial to what the study wants of the trial.

    `told`: the job has ended by itself, and the study must hear of it.
    """
    if trial.source:
        return "none"
    at_limit = ends_at_limit(config)
    if trial.state == "running":
        if told is None or told.job_id is None or job is None:
            return "submit"
        return _for_running(trial, told, job, at_limit, limit_of(config, trial))
    if told is None or job is None or job.state in ENDED:
        return "none"
    if trial.over:
        return "none" if job.wanted == "stop" else "stop"
    if trial.state == "paused":
        if at_limit and trial.step >= told.resource:
            return "none"  # it ends by itself
        if job.state == "queued":
            return "hold"
        return "pause" if job.state in ("starting", "running") and job.wanted is None else "none"
    return "none"


def _for_running(trial: TrialRecord, told: TrialJob, job: StoredJob, at_limit: bool, limit: int) -> JobStep:
    due = told.starts < trial.starts or (at_limit and told.resource < limit)
    if job.state in ENDED:
        return "retry" if due else "told"
    if not due:
        return "none"
    if job.state == "paused":
        return "resume"
    if job.state == "held":
        return "release"
    if job.state in ACTIVE and not (at_limit and trial.step >= told.resource):
        cloned = trial.parent is not None
        if told.starts < trial.starts and not cloned and job.wanted is None and not at_limit:
            return "none"
        return "pause" if job.wanted is None and job.state in ("starting", "running") else "wait"
    return "wait"


def with_words(spec: JobSpec, config: StudyConfig, trial: TrialRecord, study_id: int) -> JobSpec:
    """Return a job's specification with the words and variables of a trial as it is now."""
    fresh = trial_spec(config, trial, study_id=study_id)
    return msgspec.structs.replace(spec, run=fresh.run, env=fresh.env, tags=fresh.tags)
