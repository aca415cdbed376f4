"""WMLA's REST of a model's searches: /models/{m}/hypersearch, and the best trial of one as a new model."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weft.jobs.data.models import origins
from weft.jobs.doors.access import Authenticate, Caller, DoorError, check_submitter, read_bounded, visible_job
from weft.jobs.doors.uploads import read_form
from weft.jobs.doors.wmla.answers import find_caller, guarded, json_answer
from weft.jobs.doors.wmla.arguments import find_main, parse_arguments, to_spec
from weft.jobs.doors.wmla.hypersearch import HypersearchRequest, study_of_job
from weft.jobs.doors.wmla.model_searches import (
    changes_of,
    job_like,
    model_of,
    parse_model_request,
    script_of,
)
from weft.jobs.doors.wmla.search_routes import MOST_DATA_BYTES, SearchDoor, read_data
from weft.jobs.spec.model import ExportSpec, JobSpec
from weft.jobs.store.jobs import StoredJob, need_job, spec_of
from weft.jobs.store.snapshots import load_snapshot
from weft.jobs.studies import store

if TYPE_CHECKING:
    from weft.jobs.service.service import JobService


def model_search_routes(root: str, service: JobService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes of models' searches below WMLA's root."""
    door = ModelSearchDoor(service, authenticate)
    every = f"{root}/models/{{model}}/hypersearch"
    one = f"{every}/{{search}}"
    return [
        Route(every, guarded(door.create), methods=["POST"]),
        Route(every, guarded(door.list), methods=["GET"]),
        Route(one, guarded(door.show), methods=["GET"]),
        Route(one, guarded(door.delete), methods=["DELETE"]),
        Route(f"{one}/stop", guarded(door.stop), methods=["PUT"]),
        Route(f"{one}/force", guarded(door.stop), methods=["PUT"]),
        Route(f"{one}/restart", guarded(door.restart), methods=["PUT"]),
        Route(f"{one}/update", guarded(door.update), methods=["PUT"]),
        Route(f"{one}/create/{{new_model}}", guarded(door.create_model), methods=["PUT"]),
    ]


class ModelSearchDoor(SearchDoor):
    """Questions about the searches of one model, which `/hypersearch` lists among the others."""

    async def create(self, request: Request) -> Response:
        """Begin a search whose trials repeat the job that the model came from; answer its name."""
        caller = await find_caller(request, self._ask)
        check_submitter(caller)
        given = await _read_request(request)
        model, job, spec = await self._origin(caller, request.path_params["model"])
        digest = job.snapshot
        if digest is None:
            raise DoorError(
                "conflict", f"a model's job must have code to be searched, got none of job {job.id}"
            )
        snapshot = await self._database.read(lambda c: load_snapshot(c, digest))
        if given.model.args:
            execution = parse_arguments(given.model.args)
            main = find_main([file.path for file in snapshot.files], execution)
            spec, script = to_spec(execution, main=main), (main, *execution.script_args)
        else:
            script = script_of(spec)
        name = await self._new_name(caller, given)
        plugins = list(await asyncio.to_thread(self._plugins))
        config = study_of_job(given, job_like(spec, model), script=script, name=name, plugins=plugins)
        return await self._begin(caller, config, digest)

    async def _origin(self, caller: Caller, name: str) -> tuple[str, StoredJob, JobSpec]:
        """Return the newest version of a model that came from a job which is still there, the job and its text."""
        found = await self._database.read(lambda c: origins(c, name))
        kept = [one for _, one in sorted(found.items()) if one.job_id is not None]
        if not kept:
            raise DoorError(
                "not-found",
                f"a model must be in the store and come from a job that is there, got {name[:80]!r}; put one "
                "there with weft models add or a job's export",
            )
        number = kept[-1].job_id
        assert number is not None, "those without a job were left out"
        job = await self._database.read(lambda c: visible_job(c, caller, number))
        return f"{name}@{kept[-1].version}", job, await self._database.read(lambda c: spec_of(c, number))

    async def _listed(self, caller: Caller, request: Request) -> list[store.StoredStudy]:
        name = request.path_params["model"]
        found = await self._of_door(caller)
        return [one for one in found if model_of((await self._state(one)).config) == name]

    async def update(self, request: Request) -> Response:
        """Give a search other bounds; one that has reached its own goes on."""
        text = await read_bounded(request, MOST_DATA_BYTES)
        _, found = await self._found(request, change=True)
        changes = changes_of(text, (await self._state(found)).config)
        return await self._tell(request, "extend", ("running", "paused", "completed"), changes=changes)

    async def create_model(self, request: Request) -> Response:
        """Put what the best trial saved into the model store under a new name; answer that name."""
        caller, found = await self._found(request, change=True)
        name, new = request.path_params["model"], request.path_params["new_model"]
        shelf = self._service.data.models
        if new in await asyncio.to_thread(shelf.store.names):
            raise DoorError("conflict", f"a new model must have a new name, got {new[:80]}; take another")
        best = (await self._state(found)).best()
        jobs = await self._database.read(lambda c: store.trial_jobs(c, found.id))
        number = None if best is None or best.number not in jobs else jobs[best.number].job_id
        if number is None:
            raise DoorError(
                "conflict", f"a search must have a best trial for a model, got none in {found.name}"
            )
        job = await self._database.read(lambda c: need_job(c, number, visible_to=caller.visible_to))
        known = await self._database.read(lambda c: origins(c, name))
        path = request.query_params.get("path") or (
            known[max(known)].path if known else ExportSpec(model=new).path
        )
        folder = self._service.log_folder(job.id, max(1, job.attempt))
        await shelf.add(job, ExportSpec(model=new, path=path), folder)
        return json_answer(new)


async def _read_request(request: Request) -> HypersearchRequest:
    """Return the description of a search: a body of JSON, or the part `data` of a form."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        return parse_model_request(await read_bounded(request, MOST_DATA_BYTES))
    async with read_form(request) as parts:
        if "file" in parts:
            raise DoorError(
                "bad",
                "a model's search must run the model's own code, got the part file; POST it to /hypersearch",
            )
        if "data" not in parts:
            raise DoorError("bad", "a search must have the part data, got none; send it")
        return parse_model_request(read_data(parts["data"]))
