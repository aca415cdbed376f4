"""Inferences on films: a job in which a trained model looks at a film, and the captioned film that comes out."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.responses import Response

from weft.jobs.api.binding import Handler
from weft.jobs.api.downloads import range_response
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.routes.vision.caller import seen_model, user_of, vision_of
from weft.jobs.api.routes.vision.trainings import with_vision
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.inferences import (
    FilmInference,
    FilmInferenceBody,
    FilmInferenceDetail,
    FilmInferences,
)
from weft.jobs.api.types.jobs import JobView
from weft.jobs.api.views import find, show_jobs
from weft.jobs.spec.model import ResourceSpec
from weft.jobs.store.jobs import StoredJob, need_job
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.vision.beginning import FilmRequest, JobOwner, begin_film
from weft.jobs.vision.films import captioned_film, film_actions, film_frames
from weft.jobs.vision.trainings import INFERENCE, TAG

MOST_INFERENCES = 500


async def _begin(call: ApiCall) -> FilmInference:
    body: FilmInferenceBody = call.body
    user, file_id = user_of(call), call.path["file"]
    known = await vision_of(call).call(lambda library: library.file(file_id, user))
    if known.kind != "film":
        raise ApiRefusal(
            422, f"{known.name} must be a film, got a picture; show it to a deployment with /predict"
        )
    asked = FilmRequest(
        film=known.id,
        name=known.name,
        dataset=known.dataset,
        model=await seen_model(call, body.model),
        confidence=body.confidence,
        every=body.every,
        resources=ResourceSpec(gpus=body.gpus, cpus=body.cpus),
    )
    owner = JobOwner(call.identity.user_id, call.identity.name)
    number = await begin_film(call.state.jobs, owner, asked)
    job = await call.database.read(lambda c: need_job(c, number))
    return FilmInference(**_fields(job, (await show_jobs(call, [job]))[0]))


def _fields(job: StoredJob, view: JobView) -> dict[str, Any]:
    done = job.state == "completed"
    return {
        "job": view,
        "film": job.tags.get("film", ""),
        "film_name": job.tags.get("film_name", ""),
        "dataset": job.tags.get("dataset", ""),
        "model": job.tags.get("model", ""),
        "captioned": f"/api/v1/vision/inferences/{job.id}/film" if done else None,
    }


async def _list(call: ApiCall) -> FilmInferences:
    wanted = JobFilter(text=f"{TAG}={INFERENCE}", visible_to=call.identity.visible_to)
    jobs = (await call.database.read(lambda c: list_jobs(c, wanted, most=MOST_INFERENCES))).jobs
    views = await show_jobs(call, jobs)
    return FilmInferences(
        tuple(FilmInference(**_fields(job, view)) for job, view in zip(jobs, views, strict=True))
    )


async def _inference(call: ApiCall) -> tuple[StoredJob, Path]:
    job = await find(call)
    if job.tags.get(TAG) != INFERENCE:
        raise not_found("the inference")
    return job, call.state.jobs.log_folder(job.id, max(1, job.attempt)) / "outputs"


async def _show(call: ApiCall) -> FilmInferenceDetail:
    job, outputs = await _inference(call)
    frames, actions = await asyncio.to_thread(lambda: (film_frames(outputs), film_actions(outputs)))
    return FilmInferenceDetail(
        **_fields(job, (await show_jobs(call, [job]))[0]), frames=frames, actions=actions
    )


async def _film(call: ApiCall) -> Response:
    job, outputs = await _inference(call)
    path = captioned_film(outputs)
    if job.state != "completed" or path is None:
        raise ApiRefusal(409, f"an inference must have completed to have a film, got one that is {job.state}")
    return range_response(path, "video/mp4", call.request.headers.get("range"))


HANDLERS: Mapping[str, Handler] = {
    "begin_film_inference": with_vision(_begin),
    "list_film_inferences": _list,
    "show_film_inference": _show,
    "read_captioned_film": _film,
}
