"""Trainings (dltasks) and trained models: begun, watched, stopped; listed, exported, moved to production."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute

from weft.jobs.data.models import deployments_of
from weft.jobs.doors.access import (
    Caller,
    DoorError,
    changeable_job,
    keep_document,
    kept_document,
    visible_job,
)
from weft.jobs.doors.powerai.answers import model_id, model_json, training_json
from weft.jobs.doors.powerai.base import (
    PowerAiPart,
    body_of,
    both,
    in_order,
    json_answer,
    seen_as,
    success,
    text_of,
)
from weft.jobs.doors.powerai.identities import missing, number_of, numbered_id, plain_id
from weft.jobs.doors.powerai.script_routes import ScriptPart
from weft.jobs.doors.powerai.strategies import training_config
from weft.jobs.doors.uploads import read_upload
from weft.jobs.lifecycle import ENDED
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.listing import JobFilter, list_jobs
from weft.jobs.store.metrics import history, summaries
from weft.jobs.vision.beginning import (
    ActionsRequest,
    JobOwner,
    begin_actions,
    begin_custom,
    begin_training,
)
from weft.jobs.vision.models import PictureModel
from weft.jobs.vision.trainings import TAG, TRAINING, is_training, model_name

BASE = "base.safetensors"  # in the code of a training: weights that it begins from
KEPT = "powerai-dltask.json"  # in a job's folder
MOST_MODEL_BYTES = 4 << 30
MOST_POINTS = 500  # of a curve in a status
_MODEL = "/trained-models/{model}"


class TrainingPart(PowerAiPart):
    """Trainings and their models."""

    def routes(self) -> list[BaseRoute]:
        return [
            *both("/dltasks", {"GET": self.list, "POST": self.begin}),
            *both("/dltasks/{task}", {"GET": self.show, "DELETE": self.remove}),
            *both("/dltasks/{task}/status", {"GET": self.status}),
            *both("/dltasks/{task}/action", {"GET": self.act, "POST": self.act}),
            *both("/trained-models", {"GET": self.models}),
            *both("/trained-models/import", {"POST": self.import_model}),
            *both(_MODEL, {"GET": self.model, "PUT": self.change_model, "DELETE": self.remove_model}),
            *both(f"{_MODEL}/export", {"GET": self.export}),
            *both(f"{_MODEL}/assets/{{asset}}/download", {"GET": self.asset}),
        ]

    # -- trainings ----------------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        """Train on a data set as it is now."""
        caller, body = await self.caller(request, writes=True), await body_of(request)
        name, reference = text_of(body, "name"), plain_id(text_of(body, "dataset_id"))
        trainings = self.service.trainings
        if body.get("usage") == "act" and not text_of(body, "userdnn_id", needed=False):
            return await self._begin_actions(caller, body, model_name(name), reference)
        data = await trainings.pictures.frozen(reference, None, seen_as(caller))
        owner = JobOwner(caller.user_id, caller.user_name)
        project = body.get("project_group_id")
        group = number_of("project", str(project)) if project else None
        if script := text_of(body, "userdnn_id", needed=False):
            archive = await ScriptPart(self.service, self._ask).archive(caller, script)
            params = body.get("strategy") if isinstance(body.get("strategy"), dict) else {}
            number = await begin_custom(
                self.service, owner, data, model_name(name), archive, params or {}, group
            )
        else:
            task, arch, config = training_config(body, data.pictures)
            files = None
            if base := text_of(body, "pretrained_model", needed=False):
                weights = await self._weights(await self.find_model(base, caller))
                files = {BASE: weights}
                config["model"] = {**config.get("model", {}), "weights": BASE}
            number = await begin_training(
                self.service,
                owner,
                data,
                model_name(name),
                config,
                task,
                arch,
                files=files,
                project_id=group,
            )
        kept = {key: body.get(key) for key in ("usage", "nn_arch", "strategy")}
        await asyncio.to_thread(keep_document, self.service.folder, number, KEPT, kept)
        return success(202, task_id=numbered_id("dltask", number))

    async def _begin_actions(
        self, caller: Caller, body: dict[str, Any], name: str, reference: str
    ) -> Response:
        """Train on the actions that are marked in the films of a data set."""
        from weft.vision.actions.minimum import check_enough
        from weft.vision.library.marks.actions import list_actions

        def read(library: Any) -> Any:
            known = library.dataset(reference, seen_as(caller))
            with library.store.reading() as connection:
                return known, [one for one in list_actions(connection, known.id) if one.confidence is None]

        known, marks = await self.library(read)
        check_enough(one.label for one in marks)
        project = body.get("project_group_id")
        asked = ActionsRequest(
            dataset=known.id,
            dataset_name=known.name,
            name=name,
            marks=marks,
            project_id=number_of("project", str(project)) if project else None,
        )
        number = await begin_actions(self.service, JobOwner(caller.user_id, caller.user_name), asked)
        kept = {key: body.get(key) for key in ("usage", "nn_arch", "strategy")}
        await asyncio.to_thread(keep_document, self.service.folder, number, KEPT, kept)
        return success(202, task_id=numbered_id("dltask", number))

    async def _weights(self, found: PictureModel) -> bytes:
        """Return the weights of a model that a training begins from."""
        path = self.service.trainings.models.folder(found.model, found.version) / "weights.safetensors"
        try:
            return await asyncio.to_thread(path.read_bytes)
        except OSError:
            raise DoorError(
                "bad", f"{found.reference} must have weights to begin from, got none; name another model"
            ) from None

    async def list(self, request: Request) -> Response:
        caller, query = await self.caller(request), request.query_params
        wanted = JobFilter(text=f"{TAG}={TRAINING}", visible_to=caller.visible_to)
        jobs = (await self._database.read(lambda c: list_jobs(c, wanted, most=1000))).jobs
        models = {one.job_id: one for one in await self.service.trainings.models.all()}
        found = [training_json(job, self._kept(job), models.get(job.id)) for job in jobs]
        for name in ("usage", "status"):
            if query.get(name):
                found = [one for one in found if one[name] == query[name]]
        if query.get("pg_id"):
            groups = {numbered_id("project", number_of("project", one)) for one in query["pg_id"].split(",")}
            found = [one for one in found if one["project_group_id"] in groups]
        return json_answer(in_order(found, request))

    def _kept(self, job: StoredJob) -> Mapping[str, Any]:
        return kept_document(self.service.folder, job.id, KEPT)

    async def _job(self, request: Request, caller: Caller, *, change: bool = False) -> StoredJob:
        number, find = (
            number_of("dltask", request.path_params["task"]),
            changeable_job if change else visible_job,
        )
        job = await self._database.read(lambda c: find(c, caller, number))
        if not is_training(job):
            raise missing("dltask", request.path_params["task"])
        return job

    async def show(self, request: Request) -> Response:
        job = await self._job(request, await self.caller(request))
        model = await self.service.trainings.models.of_job(job.id)
        return json_answer(training_json(job, self._kept(job), model))

    async def status(self, request: Request) -> Response:
        """Tell how a training goes: its state, and its loss and scores over its steps."""
        job = await self._job(request, await self.caller(request))
        model = await self.service.trainings.models.of_job(job.id)
        points = await self._database.read(lambda c: _points(c, job.id))
        return json_answer(training_json(job, self._kept(job), model, points))

    async def act(self, request: Request) -> Response:
        """Stop a training; `stop` keeps the best state, `abort` keeps nothing."""
        caller, body = await self.caller(request, writes=True), await body_of(request)
        job = await self._job(request, caller, change=True)
        action = text_of(body, "action", needed=False) or request.query_params.get("action", "stop")
        if action not in ("stop", "abort"):
            raise DoorError("bad", f"action must be stop or abort, got {action[:40]!r}")
        if job.state in ENDED:
            return success()
        if action == "stop" and job.state == "running":
            folder = self.service.log_folder(job.id, max(1, job.attempt))
            await asyncio.to_thread(self.service.trainings.finish_early, folder)
        else:
            await self.service.act(job.id, "stop", user_name=caller.user_name)
        return success()

    async def remove(self, request: Request) -> Response:
        caller = await self.caller(request, writes=True)
        job = await self._job(request, caller, change=True)
        if job.state not in ENDED:
            await self.service.act(job.id, "stop", user_name=caller.user_name)
            return success(202)
        await self.service.remove(job.id, user_name=caller.user_name)
        return success()

    # -- models -------------------------------------------------------------------------------------------------------

    async def find_model(self, text: str, caller: Caller) -> PictureModel:
        """Return the trained model of an id, or NAME@VERSION, that a caller may see."""
        for one in await self.seen_models(caller):
            if text in (model_id(one), one.reference):
                return one
        raise missing("trained model", text)

    async def seen_models(self, caller: Caller, project: int | None = None) -> tuple[PictureModel, ...]:
        found = await self.service.trainings.models.all(project_id=project)
        return await self.service.trainings.seen(found, caller.visible_to, caller.user_name)

    async def _mine(self, request: Request) -> PictureModel:
        caller = await self.caller(request, writes=True)
        found = await self.find_model(request.path_params["model"], caller)
        if caller.role != "admin" and found.user_id != caller.user_id:
            raise DoorError(
                "forbidden", f"{found.reference} must be your own to be changed, got one of {found.user_name}"
            )
        return found

    async def shown(self, found: PictureModel) -> dict[str, Any]:
        results = await self.service.trainings.models.results(found)
        deployed = await self._database.read(lambda c: deployments_of(c, found.model, found.version))
        return model_json(found, results, deployed)

    async def models(self, request: Request) -> Response:
        caller, query = await self.caller(request), request.query_params
        found = [await self.shown(one) for one in await self.seen_models(caller)]
        if query.get("pg_id"):
            groups = {numbered_id("project", number_of("project", one)) for one in query["pg_id"].split(",")}
            found = [one for one in found if one["project_group_id"] in groups]
        for name in ("usage", "production_status"):
            if query.get(name):
                found = [one for one in found if one[name] == query[name]]
        return json_answer(in_order(found, request))

    async def model(self, request: Request) -> Response:
        caller = await self.caller(request)
        return json_answer(await self.shown(await self.find_model(request.path_params["model"], caller)))

    async def change_model(self, request: Request) -> Response:
        found, body = await self._mine(request), await body_of(request)
        known = next((name for name in ("project_group_id", "pg_id") if name in body), None)
        project = body.get(known) if known is not None else None
        changed = await self.service.trainings.models.change(
            found,
            status=body.get("production_status"),
            project_id=number_of("project", str(project)) if project else None,
            leave=known is not None and not project,
        )
        return success(**await self.shown(changed))

    async def remove_model(self, request: Request) -> Response:
        await self.service.trainings.models.remove(await self._mine(request))
        return success()

    async def import_model(self, request: Request) -> Response:
        """Take a model from a zip that was exported."""
        caller = await self.caller(request, writes=True)
        async with read_upload(request, MOST_MODEL_BYTES) as form:
            if len(form.files) != 1:
                raise DoorError("bad", f"an import must have one file, got {len(form.files)}; send a zip")
            with tempfile.NamedTemporaryFile(prefix="weft-model-", suffix=".zip") as place:
                await asyncio.to_thread(shutil.copyfileobj, form.files[0][1], place)
                place.flush()
                made = await self.service.trainings.models.bring_in(
                    Path(place.name), caller.user_id, form.fields.get("name", "")
                )
        return success(201, trained_model_id=model_id(made), **await self.shown(made))

    async def export(self, request: Request) -> Response:
        """Give a model as a zip, with its ONNX file and its properties."""
        found = await self.find_model(request.path_params["model"], await self.caller(request))
        entry = await asyncio.to_thread(self.service.data.models.find, found.reference)
        if entry.is_custom:  # a zip by itself
            return FileResponse(
                entry.path, media_type="application/zip", filename=f"{found.model}-{found.version}.zip"
            )
        place = await asyncio.to_thread(self._zip, found)
        return FileResponse(
            place,
            media_type="application/zip",
            filename=f"{found.model}-{found.version}.zip",
            background=BackgroundTask(place.unlink, missing_ok=True),
        )

    def _zip(self, found: PictureModel) -> Path:
        from weft.vision.export.ibm import write_zip

        with tempfile.TemporaryDirectory(prefix="weft-model-") as folder:
            for name, data in self.service.trainings.model_files(found).items():
                path = Path(folder, name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
            with tempfile.NamedTemporaryFile(prefix="weft-model-", suffix=".zip", delete=False) as target:
                return Path(write_zip(Path(folder, "model"), target.name))

    async def asset(self, request: Request) -> Response:
        caller, asset = await self.caller(request), request.path_params["asset"]
        found = await self.find_model(request.path_params["model"], caller)
        if asset != "onnx":
            raise DoorError("not-found", f"an asset must be onnx, got {asset[:40]!r}; convert that")
        entry = await asyncio.to_thread(self.service.data.models.find, found.reference)
        if entry.is_custom:
            raise DoorError("not-found", f"{found.reference} must be a graph, got a custom model; export it")
        return FileResponse(entry.path, media_type="application/octet-stream", filename=f"{found.model}.onnx")


def _points(connection: Any, job_id: int) -> list[dict[str, Any]]:
    """Return the curves of a training as these clients draw them: a list of steps with what was reported there."""
    steps: dict[int, dict[str, Any]] = {}
    for one in summaries(connection, job_id):
        found = history(connection, job_id, one.name, max(0, one.points - MOST_POINTS), MOST_POINTS)
        for step, value in zip(found.steps.tolist(), found.values.tolist(), strict=True):
            steps.setdefault(step, {"iter": step})[one.name] = value if abs(value) < float("inf") else None
    return [steps[step] for step in sorted(steps)][-MOST_POINTS:]
