"""Runs of `weft.auto`: begun as jobs, watched with their leaderboard, finished early."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from weft.auto.config import AutoConfig
from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.routes.auto.tables import tables_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.auto import (
    AutoBoardRow,
    AutoColumn,
    AutoExplanation,
    AutoFinding,
    AutoRunDetail,
    AutoRunFile,
    AutoRunsAnswer,
    AutoRunView,
    NewAutoRun,
)
from weft.jobs.api.types.jobs import JobView
from weft.jobs.api.views import find, find_own, show_jobs
from weft.jobs.auto.reading import AutoRunFiles, Found
from weft.jobs.auto.runs import RUN, TAG, AutoRequest, is_auto_run, model_name, run_document, run_spec
from weft.jobs.auto.tables import check_columns, table_file
from weft.jobs.data.models import deployments_of, models_of_job
from weft.jobs.lifecycle import ACTIVE
from weft.jobs.spec.model import ResourceSpec
from weft.jobs.store.jobs import StoredJob, need_job
from weft.jobs.store.listing import JobFilter, list_jobs

MOST_RUNS = 200
SHOWN_FILES = ("report.html", "report.pdf", "model.onnx", "leaderboard.json", "explanation.json")
_SETTINGS = (
    "target", "minutes", "task", "metric", "time", "group", "fairness", "drop", "models", "trials", "seed",
)  # fmt: skip


def files_of(call: ApiCall, job: StoredJob) -> AutoRunFiles:
    return AutoRunFiles(call.state.jobs.config.job_folder(job.id))


async def _models(call: ApiCall, jobs: list[int]) -> dict[int, str]:
    """Return the model that each job has made, where it has."""
    made = await call.database.read(lambda c: {number: models_of_job(c, number) for number in jobs})
    return {number: found[-1] for number, found in made.items() if found}


def _fields(job: StoredJob, view: JobView, model: str | None, told: Found) -> dict[str, Any]:
    board = [one for one in told.get("leaderboard", ()) if one.get("name") != "baseline"]
    best = board[0].get("score") if board else None
    return {
        "job": view,
        "table": job.tags.get("table", ""),
        "target": job.tags.get("target", ""),
        "metric": str(told.get("metric", "")),
        "score": told.get("held_score", best),
        "model": model,
    }


async def _told(call: ApiCall, job: StoredJob) -> Found:
    """Return the result of a run, or else how far it is."""
    files = files_of(call, job)
    return await asyncio.to_thread(lambda: files.result() or files.progress())


async def _list(call: ApiCall) -> AutoRunsAnswer:
    wanted = JobFilter(text=f"{TAG}={RUN}", visible_to=call.identity.visible_to)
    found = await call.database.read(lambda c: list_jobs(c, wanted, most=MOST_RUNS))
    models = await _models(call, [job.id for job in found.jobs])
    shown = await show_jobs(call, found.jobs)
    runs = [
        AutoRunView(**_fields(job, view, models.get(job.id), await _told(call, job)))
        for job, view in zip(found.jobs, shown, strict=True)
    ]
    return AutoRunsAnswer(tuple(runs))


async def _begin(call: ApiCall) -> AutoRunView:
    body: NewAutoRun = call.body
    if (body.upload is None) == (body.dataset is None):
        raise ApiRefusal(422, "a run must have an upload or a dataset, got both or neither; name one table")
    asked, upload = await _request(call, body)
    snapshot = await tables_of(call).snapshot(run_document(asked), upload)
    who = call.identity
    (number,) = await call.state.jobs.submit(
        run_spec(asked), user_id=who.user_id, user_name=who.name, snapshot=snapshot
    )
    job = await call.database.read(lambda c: need_job(c, number))
    return AutoRunView(**_fields(job, (await show_jobs(call, [job]))[0], None, {}))


async def _request(call: ApiCall, body: NewAutoRun) -> tuple[AutoRequest, dict[str, str]]:
    """Return a checked request, and the upload of its table, if it has one, by name and digest."""
    config = {name: value for name in _SETTINGS if (value := getattr(body, name)) not in (None, ())}
    AutoConfig(**config)
    if body.upload is not None:
        file, dataset = table_file(body.file), ""
        check_columns(await tables_of(call).uploaded(body.upload, file), config)
    else:
        named, file, shape = await tables_of(call).registered(body.dataset or "", body.file)
        dataset = f"dataset:{named}"
        if shape is not None:
            check_columns(shape, config)
    asked = AutoRequest(
        file=file,
        dataset=dataset,
        config=config,
        name=body.name or model_name(file, body.target),
        resources=ResourceSpec(cpus=body.cpus, memory=body.memory),
        priority=body.priority,
    )
    return asked, {} if body.upload is None else {file: body.upload}


async def _run(call: ApiCall, *, own: bool = False) -> StoredJob:
    job = await (find_own(call) if own else find(call))
    if not is_auto_run(job):
        raise not_found("the run")
    return job


async def _show(call: ApiCall) -> AutoRunDetail:
    job = await _run(call)
    files = files_of(call, job)
    progress = await asyncio.to_thread(files.progress)
    result = {**progress, **await asyncio.to_thread(files.result)}
    explained = await asyncio.to_thread(files.explanation) if "held_score" in result else {}
    model = (await _models(call, [job.id])).get(job.id)
    name, _, version = (model or "").partition("@")
    served = await call.database.read(lambda c: deployments_of(c, name, int(version))) if model else []
    try:
        return AutoRunDetail(
            **_fields(job, (await show_jobs(call, [job]))[0], model, result),
            **_shown(result),
            explanation=msgspec.convert(explained, AutoExplanation) if explained else None,
            files=await asyncio.to_thread(_files, call, job),
            deployments=tuple(served),
        )
    except (msgspec.ValidationError, TypeError, AttributeError) as error:  # its files are the owner's
        raise ApiRefusal(
            409, f"files of a run must be as it writes them, got others ({error}); begin it again"
        ) from None


def _shown(told: Found) -> dict[str, Any]:
    """Return what a run has told of its table and its models."""
    board = told.get("leaderboard", [])
    return {
        "doing": str(told.get("doing", "")),
        "spent_s": told.get("seconds", told.get("spent_s")),
        "budget_s": told.get("budget_s"),
        "models": int(told.get("models", len(board))),
        "rows": told.get("rows"),
        "validation": str(told.get("validation", "")),
        "classes": tuple(str(one) for one in told.get("classes") or ()),
        "leaderboard": msgspec.convert(board[:MOST_RUNS], tuple[AutoBoardRow, ...]),
        "columns": msgspec.convert(told.get("columns", ()), tuple[AutoColumn, ...]),
        "findings": msgspec.convert(told.get("findings", ()), tuple[AutoFinding, ...]),
        "notes": tuple(str(one) for one in told.get("notes", ())),
    }


def _files(call: ApiCall, job: StoredJob) -> tuple[AutoRunFile, ...]:
    """Return the results that can be downloaded."""
    attempt = max(1, job.attempt)
    outputs = call.state.jobs.log_folder(job.id, attempt) / "outputs"
    home = f"/api/v1/jobs/{job.id}/files/attempt-{attempt}/outputs"
    found = [(name, outputs / name) for name in SHOWN_FILES]
    return tuple(
        AutoRunFile(name, f"{home}/{name}", path.stat().st_size)
        for name, path in found
        if path.is_file() and not path.is_symlink()
    )


async def _finish(call: ApiCall) -> JobView:
    job = await _run(call, own=True)
    if job.state not in ACTIVE:
        raise ApiRefusal(409, f"a run must be running to be finished early, got one that is {job.state}")
    await asyncio.to_thread(files_of(call, job).finish_early)
    return (await show_jobs(call, [job]))[0]


HANDLERS: Mapping[str, Handler] = {
    "list_auto_runs": _list,
    "begin_auto_run": _begin,
    "show_auto_run": _show,
    "finish_auto_run": _finish,
}
