"""Trainings of pictures: begun as jobs, watched, finished early; and models that label pictures, as jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.responses import FileResponse, Response

from weft.jobs.api.binding import Handler, read_body
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.routes.vision.caller import may_look, seen_model
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.jobs import JobView
from weft.jobs.api.types.trainings import (
    AutolabelAnswer,
    AutolabelBody,
    CustomTrainingQuery,
    NewTraining,
    TrainingDetail,
    TrainingExample,
    TrainingsAnswer,
    TrainingView,
)
from weft.jobs.api.views import find, find_own, show_jobs
from weft.jobs.lifecycle import ACTIVE
from weft.jobs.spec.model import ResourceSpec
from weft.jobs.store.jobs import StoredJob, need_job
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.vision.autolabel import LabellingRequest, labelling_document, labelling_spec
from weft.jobs.vision.beginning import JobOwner, begin_custom, begin_training
from weft.jobs.vision.models import EXAMPLES, PictureModel, list_examples
from weft.jobs.vision.training_parts import TrainingParts
from weft.jobs.vision.trainings import (
    DOCUMENT,
    MODEL_FOLDER,
    TAG,
    TRAINING,
    check_config,
    is_training,
    model_name,
)

MOST_TRAININGS = 500
MOST_CUSTOM_BYTES = 64 << 20  # of a custom model's zip


def trainings_of(call: ApiCall) -> TrainingParts:
    return call.state.jobs.trainings


def with_vision(handler: Handler) -> Handler:
    """Return a handler that says what must be installed where the library of pictures cannot be loaded."""

    async def answer(call: ApiCall) -> Any:
        try:
            return await handler(call)
        except ModuleNotFoundError as error:
            raise ApiRefusal(
                503, f"pictures must have weft[vision] on the service, got no {error.name}; install it there"
            ) from None

    return answer


def seen_as(call: ApiCall) -> str | None:
    """Return the name by which a caller sees data sets of pictures; administrators see all of them."""
    return None if call.identity.is_admin else call.identity.name


async def _list(call: ApiCall) -> TrainingsAnswer:
    wanted = JobFilter(text=f"{TAG}={TRAINING}", visible_to=call.identity.visible_to)
    found = await call.database.read(lambda c: list_jobs(c, wanted, most=MOST_TRAININGS))
    models = {one.job_id: one for one in await trainings_of(call).models.all() if one.job_id is not None}
    shown = await show_jobs(call, found.jobs)
    pairs = zip(found.jobs, shown, strict=True)
    return TrainingsAnswer(
        tuple(TrainingView(**_fields(job, view, models.get(job.id))) for job, view in pairs)
    )


def _fields(job: StoredJob, view: JobView, model: PictureModel | None) -> dict[str, Any]:
    return {
        "job": view,
        "dataset": job.tags.get("dataset", ""),
        "dataset_name": job.tags.get("dataset_name", ""),
        "version": int(job.tags.get("dataset_version", "0")),
        "task": job.tags.get("task", ""),
        "network": job.tags.get("network", ""),
        "model": model.reference if model is not None else None,
        "score_name": model.score_name if model is not None else "",
        "score": model.score if model is not None else None,
    }


async def _begin(call: ApiCall) -> TrainingView:
    body: NewTraining = call.body
    check_config(body.config, body.task, body.model)  # before a version is frozen for it
    data = await trainings_of(call).pictures.frozen(body.dataset, body.version, seen_as(call))
    number = await begin_training(
        call.state.jobs,
        JobOwner(call.identity.user_id, call.identity.name),
        data,
        body.name or model_name(data.name),
        body.config,
        body.task,
        body.model,
        workers=body.workers,
        resources=ResourceSpec(gpus=body.gpus, cpus=body.cpus, memory=body.memory, lms=body.lms),
        project_id=body.project,
        priority=body.priority,
    )
    job = await call.database.read(lambda c: need_job(c, number))
    return TrainingView(**_fields(job, (await show_jobs(call, [job]))[0], None))


async def _begin_custom(call: ApiCall) -> TrainingView:
    """Train by a user's own code: whoever may submit jobs may, and it runs as theirs."""
    query: CustomTrainingQuery = call.query
    try:
        params = json.loads(query.params)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        raise ApiRefusal(422, f"params must be an object in JSON, got {query.params[:80]!r}")
    archive = await read_body(call.request, MOST_CUSTOM_BYTES)
    data = await trainings_of(call).pictures.frozen(query.dataset, query.version, seen_as(call))
    owner = JobOwner(call.identity.user_id, call.identity.name)
    name = query.name or model_name(data.name)
    number = await begin_custom(call.state.jobs, owner, data, name, archive, params)
    job = await call.database.read(lambda c: need_job(c, number))
    return TrainingView(**_fields(job, (await show_jobs(call, [job]))[0], None))


async def _training(call: ApiCall, *, own: bool = False) -> StoredJob:
    job = await (find_own(call) if own else find(call))
    if not is_training(job):
        raise not_found("the training")
    return job


def _attempt(call: ApiCall, job: StoredJob) -> Path:
    return call.state.jobs.log_folder(job.id, max(1, job.attempt))


async def _show(call: ApiCall) -> TrainingDetail:
    job = await _training(call)
    model = await trainings_of(call).models.of_job(job.id)
    folder = _attempt(call, job)
    results = await trainings_of(call).models.results(model) if model is not None else {}
    looks = await may_look(call, job.tags.get("dataset", ""), job.user_id)
    names = await asyncio.to_thread(list_examples, folder / "outputs" / MODEL_FOLDER) if looks else ()
    return TrainingDetail(
        **_fields(job, (await show_jobs(call, [job]))[0], model),
        config=await asyncio.to_thread(_config, folder),
        examples=tuple(
            TrainingExample(name, f"/api/v1/vision/trainings/{job.id}/examples/{name}") for name in names
        ),
        results=results,
    )


def _config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a training: resolved if it has begun, else as it was asked for."""
    places = (
        (folder / "outputs" / MODEL_FOLDER / "config.json", None),
        (folder / "code" / DOCUMENT, "config"),
    )
    for path, inside in places:
        try:
            if path.is_symlink():
                continue
            found = json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
        found = found.get(inside, {}) if inside is not None and isinstance(found, dict) else found
        if isinstance(found, dict):
            return found
    return {}


async def _finish(call: ApiCall) -> JobView:
    job = await _training(call, own=True)
    if job.state not in ACTIVE:
        raise ApiRefusal(409, f"a training must be running to be finished early, got one that is {job.state}")
    await asyncio.to_thread(trainings_of(call).finish_early, _attempt(call, job))
    return (await show_jobs(call, [job]))[0]


async def _example(call: ApiCall) -> Response:
    job = await _training(call)
    if not await may_look(call, job.tags.get("dataset", ""), job.user_id):
        raise not_found("the example")
    return example_response(_attempt(call, job) / "outputs" / MODEL_FOLDER, call.path["name"])


def example_response(folder: Path, name: str) -> Response:
    """Return a picture among a model folder's examples."""
    if name not in list_examples(folder):
        raise not_found("the example")
    kinds = {".jpg": "image/jpeg", ".png": "image/png", ".json": "application/json"}
    headers = {"cache-control": "no-cache", "content-security-policy": "default-src 'none'; sandbox"}
    return FileResponse(folder / EXAMPLES / name, media_type=kinds[Path(name).suffix], headers=headers)


async def _label(call: ApiCall) -> AutolabelAnswer:
    """Let a trained model label those pictures of a data set that nobody has labelled."""
    body: AutolabelBody = call.body
    vision = trainings_of(call)
    model = await seen_model(call, body.model)
    data = await vision.pictures.frozen(call.path["dataset"], None, seen_as(call))
    files = body.files or await asyncio.to_thread(vision.unlabelled, data)
    if not files:
        raise ApiRefusal(422, f"{data.name} must have pictures without labels, got none; name the files")
    asked = LabellingRequest(
        data=data,
        files=tuple(files),
        model=model,
        confidence=body.confidence,
        workers=body.workers,
        resources=ResourceSpec(gpus=body.gpus, cpus=body.cpus),
    )
    snapshot = await vision.snapshot(labelling_document(asked), model)
    who = call.identity
    (number,) = await call.state.jobs.submit(
        labelling_spec(asked), user_id=who.user_id, user_name=who.name, snapshot=snapshot
    )
    job = await call.database.read(lambda c: need_job(c, number))
    return AutolabelAnswer((await show_jobs(call, [job]))[0], len(files))


HANDLERS: Mapping[str, Handler] = {
    "list_trainings": _list,
    "begin_training": with_vision(_begin),
    "begin_custom_training": with_vision(_begin_custom),
    "show_training": _show,
    "finish_training": _finish,
    "read_training_example": _example,
    "label_pictures": with_vision(_label),
}
