"""Trained models of pictures: listed with their results, moved through the work flow, served and tried."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.responses import FileResponse, Response

from weft.jobs.api.binding import Handler, read_body
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.routes.deployments import deployment_view, may_change_deployment
from weft.jobs.api.routes.vision.caller import may_look, seen_model, user_of, vision_of
from weft.jobs.api.routes.vision.trainings import example_response, trainings_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.data import DeploymentView
from weft.jobs.api.types.trainings import (
    PictureModelChanges,
    PictureModelDetail,
    PictureModelsAnswer,
    PictureModelView,
    PredictAnswer,
    TrainingExample,
)
from weft.jobs.data.deployment_records import Deployment
from weft.jobs.data.models import deployments_of
from weft.jobs.vision.collecting import collect_picture, is_doubtful
from weft.jobs.vision.models import PictureModel
from weft.jobs.vision.predictions import PredictionError, predict
from weft.jobs.vision.projects import find_project, may_deploy

MOST_PICTURE_BYTES = 64 << 20


async def _fields(call: ApiCall, found: PictureModel) -> dict[str, Any]:
    names = (
        "model", "version", "reference", "task", "network", "dataset", "dataset_name", "dataset_version",
        "score_name", "score", "status", "created_ms", "changed_ms",
    )  # fmt: skip
    served = await call.database.read(lambda c: deployments_of(c, found.model, found.version))
    return {name: getattr(found, name) for name in names} | {
        "job": found.job_id,
        "project": found.project_id,
        "user": found.user_name,
        "mine": _may_change(call, found),
        "deployments": tuple(served),
    }


def _may_change(call: ApiCall, found: PictureModel) -> bool:
    who = call.identity
    return "write" in who.scopes and (who.is_admin or found.user_id == who.user_id)


async def _view(call: ApiCall, found: PictureModel) -> PictureModelView:
    return PictureModelView(**await _fields(call, found))


async def _mine(call: ApiCall) -> PictureModel:
    found = await seen_model(call, call.path["model"])
    if not _may_change(call, found):
        raise ApiRefusal(
            403, f"{found.reference} must be your own to be changed, got one of {found.user_name}"
        )
    return found


async def _list(call: ApiCall) -> PictureModelsAnswer:
    wanted = call.query
    shown = []
    found = await trainings_of(call).models.all(project_id=wanted.project)
    for one in await trainings_of(call).seen(found, call.identity.visible_to, call.identity.name):
        same = wanted.dataset in (None, one.dataset, one.dataset_name) and wanted.task in (None, one.task)
        if same and wanted.status in (None, one.status):
            shown.append(await _view(call, one))
    return PictureModelsAnswer(tuple(shown))


async def _show(call: ApiCall) -> PictureModelDetail:
    found = await seen_model(call, call.path["model"])
    results = await trainings_of(call).models.results(found)
    looks = await may_look(call, found.dataset, found.user_id)
    names = await trainings_of(call).models.examples(found) if looks else ()
    home = f"/api/v1/vision/models/{found.reference}/examples"
    return PictureModelDetail(
        **await _fields(call, found),
        results=results,
        examples=tuple(TrainingExample(name, f"{home}/{name}") for name in names),
        classes=tuple(str(one) for one in results.get("classes", ())),
    )


async def _change(call: ApiCall) -> PictureModelView:
    found, body = await _mine(call), call.body
    assert isinstance(body, PictureModelChanges)
    leave = body.project is None
    number = body.project if isinstance(body.project, int) else None
    if number is not None:
        await call.database.read(lambda c: find_project(c, number))
    changed = await trainings_of(call).models.change(
        found, status=body.status, project_id=number, leave=leave and body.project is not UNSET
    )
    return await _view(call, changed)


async def _remove(call: ApiCall) -> None:
    await trainings_of(call).models.remove(await _mine(call))


async def _example(call: ApiCall) -> Response:
    found = await seen_model(call, call.path["model"])
    if not await may_look(call, found.dataset, found.user_id):
        raise not_found("the example")
    return example_response(trainings_of(call).models.folder(found.model, found.version), call.path["name"])


async def _export(call: ApiCall) -> Response:
    found = await seen_model(call, call.path["model"])
    entry = await asyncio.to_thread(call.state.jobs.data.models.find, found.reference)
    name = f"{found.model}-{found.version}{entry.path.suffix}"
    return FileResponse(entry.path, media_type="application/octet-stream", filename=name)


async def _deploy(call: ApiCall) -> DeploymentView:
    found = await seen_model(call, call.path["model"])
    project = found.project_id
    if project is not None:
        known = await call.database.read(lambda c: find_project(c, project))
        if not may_deploy(known, found):
            raise ApiRefusal(
                409,
                f"{found.reference} must be for production to be served in {known.name}, got {found.status}",
            )
    deployments, who = call.state.jobs.data.deployments, call.identity
    name = call.body.name or found.model.replace(".", "-")[:50]
    there = next((one for one in await deployments.all() if one.name == name), None)
    if there is not None and not may_change_deployment(there, who):
        raise ApiRefusal(403, f"{name} must be your own to be changed, got one of {there.user_name}")
    made = await deployments.deploy(name, found.reference, user_id=who.user_id, user_name=who.name)
    return deployment_view(made, who)


async def _predict(call: ApiCall) -> PredictAnswer:
    picture = await read_body(call.request, MOST_PICTURE_BYTES)
    if not picture:
        raise ApiRefusal(
            422, "a request must have a picture as its body, got none; send the bytes of a JPEG or PNG"
        )
    deployments = call.state.jobs.data.deployments
    known = await deployments.find(call.path["deployment"])
    try:
        answer = await predict(
            deployments,
            known,
            picture,
            confidence=call.query.confidence,
            top=call.query.top,
            heat=call.query.heat,
        )
    except PredictionError as error:
        raise ApiRefusal(error.status, str(error)) from None
    if call.query.collect and is_doubtful(answer, call.query.below):
        answer["collected"] = await _collect(call, known, picture, answer)
    return msgspec.convert(answer, PredictAnswer)


async def _collect(call: ApiCall, known: Deployment, picture: bytes, answer: Mapping[str, Any]) -> str:
    """Take a picture into a data set, with what the model makes of it as automatic labels."""
    if "write" not in call.identity.scopes:
        raise ApiRefusal(403, "a token must have the scope write to collect pictures, got one without")
    user, reference, name = user_of(call), call.query.collect, call.identity.name
    model = f"{known.model}@{known.version}"
    added = await vision_of(call).call(
        lambda library: collect_picture(library, reference, picture, answer, model, user=user, by=name)
    )
    await asyncio.to_thread(vision_of(call).changed, added.dataset, file=added.id)
    return added.id


HANDLERS: Mapping[str, Handler] = {
    "list_trained_models": _list,
    "show_trained_model": _show,
    "change_trained_model": _change,
    "remove_trained_model": _remove,
    "read_model_example": _example,
    "read_model_export": _export,
    "deploy_trained_model": _deploy,
    "predict_picture": _predict,
}
