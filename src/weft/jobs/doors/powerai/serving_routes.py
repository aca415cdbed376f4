"""Deployed models (webapis), their answers (dlapis), and projects with their aliases."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from weft.errors import PictureError
from weft.files import write_whole
from weft.jobs.data.deployment_records import Deployment
from weft.jobs.doors.access import Caller, DoorError, check_submitter
from weft.jobs.doors.powerai.answers import deployment_json, inference_json, project_json
from weft.jobs.doors.powerai.base import (
    body_of,
    both,
    in_order,
    json_answer,
    seen_as,
    share,
    success,
    text_of,
)
from weft.jobs.doors.powerai.data_routes import FILMS
from weft.jobs.doors.powerai.film_routes import FilmPart
from weft.jobs.doors.powerai.identities import missing, number_of, numbered_id, plain_id
from weft.jobs.doors.powerai.training_routes import TrainingPart
from weft.jobs.doors.uploads import read_upload
from weft.jobs.vision import projects
from weft.jobs.vision.collecting import collect_picture
from weft.jobs.vision.models import PictureModel, PictureModelNotFound
from weft.jobs.vision.predictions import predict, with_run_lengths
from weft.jobs.vision.projects import PictureProject, choose_model, find_project, may_deploy
from weft.jobs.vision.trainings import model_name
from weft.vision.refusals import PicturesNotFoundError

MOST_PICTURE_BYTES = 64 << 20
MOST_FILM_BYTES = 4 << 30
_PROJECT = "/projects/{project}"


class ServingPart(TrainingPart, FilmPart):
    """Deployed models and projects."""

    def routes(self) -> list[BaseRoute]:
        return [
            *FilmPart.routes(self),
            *both("/webapis", {"GET": self.webapis, "POST": self.deploy}),
            *both("/webapis/{webapi}", {"GET": self.webapi, "DELETE": self.undeploy}),
            *both("/dlapis/{webapi}", {"GET": self.infer_url, "POST": self.infer}),
            *both("/projects", {"GET": self.projects, "POST": self.add_project}),
            *both(_PROJECT, {"GET": self.project, "PUT": self.change_project, "DELETE": self.remove_project}),
            *both(f"{_PROJECT}/models/{{which}}", {"GET": self.project_model}),
            *both(f"{_PROJECT}/models/{{which}}/deploy", {"POST": self.deploy_of_project}),
            *both(f"{_PROJECT}/models/{{which}}/predict", {"POST": self.predict_of_project}),
        ]

    # -- deployed models ----------------------------------------------------------------------------------------------

    async def _shown(self, found: Deployment) -> dict[str, Any]:
        try:
            model: PictureModel | None = await self.service.trainings.models.find(
                f"{found.model}@{found.version}"
            )
        except PictureModelNotFound:
            model = None
        return deployment_json(found, model, self.service.variables.url or "")

    async def webapis(self, request: Request) -> Response:
        await self.caller(request)
        found = [await self._shown(one) for one in await self.service.data.deployments.all()]
        for name in ("usage", "status", "trained_model_id"):
            if wanted := request.query_params.get(name):
                found = [one for one in found if one[name] == wanted]
        return json_answer(in_order(found, request))

    async def _deployment(self, text: str) -> Deployment:
        number = None
        for one in await self.service.data.deployments.all():
            number = number_of("webapi", text) if number is None and text != one.name else number
            if text == one.name or one.id == number:
                return one
        raise missing("webapi", text)

    async def webapi(self, request: Request) -> Response:
        await self.caller(request)
        return json_answer(await self._shown(await self._deployment(request.path_params["webapi"])))

    async def deploy(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        model = await self.find_model(text_of(body, "trained_model_id"), caller)
        return await self._deployed(caller, model, body)

    async def _deployed(self, caller: Caller, model: PictureModel, body: dict[str, Any]) -> Response:
        """Serve a model, if its project lets it be served."""
        name, into = text_of(body, "name", needed=False), body.get("save_inference")
        if into:
            saves = await self.library(lambda library: library.dataset(plain_id(str(into)), seen_as(caller)))
        project = model.project_id
        if project is not None:
            known = await self._database.read(lambda c: find_project(c, project))
            if not may_deploy(known, model):
                raise DoorError(
                    "conflict",
                    f"{model.reference} must be for production in {known.name}, got {model.status}",
                )
        wanted = model_name(name or model.model).replace(".", "-")[:50]
        there = next((one for one in await self.service.data.deployments.all() if one.name == wanted), None)
        if there is not None and caller.role != "admin" and there.user_id != caller.user_id:
            raise DoorError(
                "forbidden", f"{wanted} must be your own to be changed, got one of {there.user_name}"
            )
        made = await self.service.data.deployments.deploy(
            wanted, model.reference, user_id=caller.user_id, user_name=caller.user_name
        )
        kept = self._saving_file(made)
        if into:
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            await asyncio.to_thread(write_whole, kept, saves.id)
        elif "save_inference" in body:
            kept.unlink(missing_ok=True)
        return success(202, webapi_id=numbered_id("webapi", made.id), **await self._shown(made))

    def _saving_file(self, found: Deployment) -> Path:
        """Return where it is kept which data set takes what a deployed model is shown."""
        return self.service.folder / "deployments" / str(found.id) / "save-inference"

    async def _save(self, found: Deployment, picture: bytes, answer: dict[str, Any], user: str) -> None:
        """Take a picture, with what the model sees in it, into the data set that the deployment names."""
        try:
            into = await asyncio.to_thread(self._saving_file(found).read_text)
        except OSError:
            return
        model = f"{found.model}@{found.version}"
        with suppress(PicturesNotFoundError, PictureError):  # a data set that is gone takes nothing
            await self.library(
                lambda library: collect_picture(library, into, picture, answer, model, user=None, by=user)
            )

    async def undeploy(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        found = await self._deployment(request.path_params["webapi"])
        if caller.role != "admin" and found.user_id != caller.user_id:
            raise DoorError(
                "forbidden", f"{found.name} must be your own to be removed, got one of {found.user_name}"
            )
        await self.service.data.deployments.remove(found.name, user_name=caller.user_name)
        self._saving_file(found).unlink(missing_ok=True)
        return success()

    # -- answers ------------------------------------------------------------------------------------------------------

    async def infer(self, request: Request) -> Response:
        """Show a picture or a film of a form to a deployed model."""
        caller = await self.caller(request)
        found = await self._deployment(request.path_params["webapi"])
        return await self._inferred(request, found, caller)

    async def _inferred(self, request: Request, found: Deployment, caller: Caller) -> Response:
        async with read_upload(request, MOST_FILM_BYTES, most_files=1) as form:
            if not form.files:
                raise DoorError("bad", "a request must have a part named files with a picture, got none")
            name, file = form.files[0]
            if name.lower().endswith(FILMS):
                check_submitter(caller)
                confidence = share(form.fields.get("confthre", ""), "confthre", 0.5)
                begun = await self.begin_on_film(caller, found, name, file, confidence)
                waits = {**request.query_params, **form.fields}.get("waitForResults", "").lower() == "true"
                return await self.waited_for(caller, begun) if waits else begun
            if file.seek(0, 2) > MOST_PICTURE_BYTES:
                raise DoorError(
                    "too-large", f"a picture must have at most {MOST_PICTURE_BYTES} bytes, got more"
                )
            file.seek(0)
            picture, fields = file.read(), dict(form.fields)
        return await self._answer(found, picture, name, {**request.query_params, **fields}, caller)

    async def infer_url(self, request: Request) -> Response:
        """Show a picture at a public address to a deployed model."""
        from weft.serve.server.pictures.fetching import fetch
        from weft.serve.server.refusal import RefusalError

        caller = await self.caller(request)
        found, url = (
            await self._deployment(request.path_params["webapi"]),
            request.query_params.get("imageUrl", ""),
        )
        if not url:
            raise DoorError("bad", "imageUrl must be given, got none; write ?imageUrl=https://...")
        try:
            picture = await asyncio.to_thread(fetch, url, MOST_PICTURE_BYTES)
        except RefusalError as error:
            raise DoorError("bad", str(error)) from None
        return await self._answer(found, picture, url, dict(request.query_params), caller)

    async def _answer(
        self, found: Deployment, picture: bytes, image: str, asked: dict[str, str], caller: Caller
    ) -> Response:
        asked = {name.lower(): value for name, value in asked.items()}  # clients write containRle, containrle
        confidence = share(asked.get("confthre", ""), "confthre", 0.5)
        top = asked.get("clsnum", "")
        if top and not (top.isdecimal() and 1 <= int(top) <= 1000):
            raise DoorError("bad", f"clsnum must be a whole number from 1 to 1000, got {top[:40]!r}")
        heat = asked.get("containheatmap", "").lower() == "true"
        answer = await predict(
            self.service.data.deployments,
            found,
            picture,
            confidence=confidence,
            top=int(top) if top else 5,
            heat="true" if heat else "",
        )
        digest = hashlib.md5(picture, usedforsecurity=False).hexdigest()
        await self._save(found, picture, answer, caller.user_name)
        polygons = asked.get("containpolygon", "").lower() == "true"
        if asked.get("containrle", "").lower() == "true":
            answer = await asyncio.to_thread(with_run_lengths, answer, picture)
        deployment = numbered_id("webapi", found.id)
        return json_answer(
            inference_json(answer, deployment, md5=digest, image=image, heatmap=heat, polygons=polygons)
        )

    # -- projects -----------------------------------------------------------------------------------------------------

    async def _project(self, request: Request, caller: Caller, *, own: bool = False) -> PictureProject:
        number = number_of("project", request.path_params["project"])
        found = await self._database.read(lambda c: find_project(c, number))
        if own and caller.role != "admin" and found.user_id != caller.user_id:
            raise DoorError(
                "forbidden", f"{found.name} must be your own to be changed, got one of {found.user_name}"
            )
        return found

    async def projects(self, request: Request) -> Response:
        await self.caller(request)
        found = await self._database.read(projects.list_projects)
        return json_answer(in_order([project_json(one) for one in found], request))

    async def add_project(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        name, more = text_of(body, "name"), _project_fields(body)
        made = await self._database.write(lambda c: projects.add_project(c, name, caller.user_id, **more))
        return success(201, **project_json(made))

    async def project(self, request: Request) -> Response:
        return json_answer(project_json(await self._project(request, await self.caller(request))))

    async def change_project(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        found = await self._project(request, caller, own=True)
        more = {**_project_fields(body), "name": text_of(body, "name", needed=False) or None}
        changed = await self._database.write(lambda c: projects.change_project(c, found.id, **more))
        return success(**project_json(changed))

    async def remove_project(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        found = await self._project(request, caller, own=True)
        await self._database.write(lambda c: projects.remove_project(c, found.id))
        return success()

    async def _of_project(self, request: Request, caller: Caller) -> PictureModel:
        found = await self._project(request, caller)
        known, which = (
            await self.seen_models(caller, found.id),
            request.path_params["which"],
        )
        try:
            return choose_model(known, which)
        except PictureModelNotFound:
            model = await self.find_model(which, caller)
            if model not in known:
                raise
            return model

    async def project_model(self, request: Request) -> Response:
        return json_answer(await self.shown(await self._of_project(request, await self.caller(request))))

    async def deploy_of_project(self, request: Request) -> Response:
        caller, body = await self.caller(request, writes=True), await body_of(request)
        model = await self._of_project(request, caller)
        return await self._deployed(caller, model, body)

    async def predict_of_project(self, request: Request) -> Response:
        """Show a picture to the model that an alias of a project means, which must be deployed."""
        caller = await self.caller(request)
        model = await self._of_project(request, caller)
        for one in await self.service.data.deployments.all():
            if (one.model, one.version) == (model.model, model.version) and one.state == "running":
                return await self._inferred(request, one, caller)
        raise DoorError(
            "conflict", f"{model.reference} must be deployed to answer, got none that runs; deploy it"
        )


def _project_fields(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for theirs, ours in (("enforce_pwf", "enforce"), ("auto_deploy", "auto_deploy")):
        if theirs in body:
            found[ours] = str(body[theirs]).lower() in ("true", "1", "yes")
    if isinstance(body.get("description"), str):
        found["description"] = body["description"]
    return found
