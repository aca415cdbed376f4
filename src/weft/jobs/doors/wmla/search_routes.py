"""WMLA's REST of searches: /hypersearch, whose searches are studies and whose experiments are jobs."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from weft.jobs.doors.access import Authenticate, Caller, DoorError, check_submitter
from weft.jobs.doors.uploads import add_archive, read_form
from weft.jobs.doors.wmla.answers import find_caller, guarded, json_answer
from weft.jobs.doors.wmla.arguments import DOOR, find_main, parse_arguments
from weft.jobs.doors.wmla.hypersearch import ALGORITHMS, HypersearchRequest, parse_request, to_study
from weft.jobs.doors.wmla.search_states import search_json
from weft.jobs.store.events import add_audit, now_ms
from weft.jobs.store.metrics import summaries
from weft.jobs.store.snapshots import add_snapshot
from weft.jobs.studies import store
from weft.jobs.studies.algorithms import InstalledAlgorithm
from weft.jobs.studies.begin import begin_study
from weft.text import format_size
from weft.tune.study.config import StudyConfig
from weft.tune.study.state import SearchState

if TYPE_CHECKING:
    from weft.jobs.service.service import JobService

MOST_DATA_BYTES = 4 << 20  # of the description of a search


def search_routes(root: str, service: JobService, authenticate: Authenticate) -> list[BaseRoute]:
    """Return the routes of searches below WMLA's root."""
    door = SearchDoor(service, authenticate)
    every, one = f"{root}/hypersearch", f"{root}/hypersearch/{{search}}"
    algorithm = f"{every}/algorithm"
    return [
        Route(algorithm, guarded(door.algorithms), methods=["GET"]),
        Route(f"{algorithm}/install", guarded(door.install), methods=["POST"]),
        Route(f"{algorithm}/{{algorithm}}", guarded(door.show_algorithm), methods=["GET"]),
        Route(f"{algorithm}/{{algorithm}}", guarded(door.remove_algorithm), methods=["DELETE"]),
        Route(every, guarded(door.create), methods=["POST"]),
        Route(every, guarded(door.list), methods=["GET"]),
        Route(every, guarded(door.delete_all), methods=["DELETE"]),
        Route(one, guarded(door.show), methods=["GET"]),
        Route(one, guarded(door.stop), methods=["PUT"]),
        Route(one, guarded(door.delete), methods=["DELETE"]),
        Route(f"{one}/force", guarded(door.stop), methods=["PUT"]),
        Route(f"{one}/restart", guarded(door.restart), methods=["PUT"]),
    ]


class SearchDoor:
    """Questions about searches, answered by the studies of the service."""

    def __init__(self, service: JobService, authenticate: Authenticate) -> None:
        self._service, self._database, self._ask = service, service.database, authenticate

    # -- beginning ----------------------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        """Begin a search from its description and the model's folder; answer its name."""
        caller = await find_caller(request, self._ask)
        check_submitter(caller)
        async with read_form(request) as parts:
            if "file" not in parts or "data" not in parts:
                raise DoorError("bad", "a search must have the parts file and data, got not both; send both")
            given = parse_request(read_data(parts["data"]))
            execution = parse_arguments(given.model.args)
            snapshot = await asyncio.to_thread(
                add_archive, self._service.blobs, parts["file"], script_name=Path(execution.main).name
            )
        main = find_main([file.path for file in snapshot.files], execution)
        name = await self._new_name(caller, given)
        plugins = await asyncio.to_thread(self._plugins)
        config = to_study(given, execution, main=main, name=name, plugins=list(plugins))
        digest = await self._database.write(lambda connection: add_snapshot(connection, snapshot))
        return await self._begin(caller, config, digest)

    async def _new_name(self, caller: Caller, given: HypersearchRequest) -> str:
        name = given.name or f"{caller.user_name}-hpo-{time.time_ns()}"
        if any(one.name == name for one in await self._of_door(caller)):
            raise DoorError("conflict", f"hpoName must be new, got {name}, which there is; take another")
        return name

    async def _begin(self, caller: Caller, config: StudyConfig, snapshot: str) -> Response:
        begun = await begin_study(
            self._service, config, user_id=caller.user_id, user_name=caller.user_name, snapshot=snapshot
        )
        assert begun.id is not None, "it was no dry run"
        return json_answer(config.name)

    # -- looking ------------------------------------------------------------------------------------------------------

    async def _of_door(self, caller: Caller) -> list[store.StoredStudy]:
        found = await self._database.read(lambda c: store.list_studies(c, visible_to=caller.visible_to))
        return [one for one in found if one.project == DOOR]

    async def _listed(self, caller: Caller, request: Request) -> list[store.StoredStudy]:
        """Return the searches that a path is about."""
        return await self._of_door(caller)

    async def _found(self, request: Request, *, change: bool = False) -> tuple[Caller, store.StoredStudy]:
        caller = await find_caller(request, self._ask)
        name = request.path_params["search"]
        found = next((one for one in await self._listed(caller, request) if one.name == name), None)
        if found is None:
            raise DoorError(
                "not-found", f"a search must exist, got {name[:80]!r}; list them with GET /hypersearch"
            )
        own = caller.job_id is None and (caller.role == "admin" or found.user_id == caller.user_id)
        if change and not (own and caller.may_submit()):
            raise DoorError(
                "forbidden", f"a search must be your own to be changed, got one of {found.user_name}"
            )
        return caller, found

    async def _state(self, found: store.StoredStudy) -> SearchState:
        states = self._service.study_states
        start, events = await self._database.read(lambda c: states.new_events(c, found.id))
        return states.take(found.id, start, events).state

    async def _json(self, found: store.StoredStudy) -> dict[str, Any]:
        state = await self._state(found)
        trial_jobs = await self._database.read(lambda c: store.trial_jobs(c, found.id))
        jobs = {number: one.job_id for number, one in trial_jobs.items()}
        numbers = [job for job in jobs.values() if job is not None]
        metrics = await self._database.read(lambda c: {job: summaries(c, job) for job in numbers})
        return search_json(
            state, jobs, metrics, creator=found.user_name, created_ms=found.created_ms, now_s=time.time()
        )

    async def list(self, request: Request) -> Response:
        caller = await find_caller(request, self._ask)
        return json_answer([await self._json(found) for found in await self._listed(caller, request)])

    async def show(self, request: Request) -> Response:
        _, found = await self._found(request)
        return json_answer(await self._json(found))

    # -- asking -------------------------------------------------------------------------------------------------------

    async def _tell(self, request: Request, verb: str, allowed: tuple[str, ...], **more: Any) -> Response:
        caller, found = await self._found(request, change=True)
        if found.state not in allowed:
            raise DoorError(
                "conflict", f"a search must be {' or '.join(allowed)} for that, got {found.state}"
            )
        name = caller.user_name
        await self._database.write(
            lambda c: store.ask_study(c, found.id, {"do": verb, **more}, user_name=name)
        )
        self._service.wake()
        return json_answer(found.name)

    async def stop(self, request: Request) -> Response:
        return await self._tell(request, "stop", ("running", "paused"))

    async def restart(self, request: Request) -> Response:
        return await self._tell(request, "resume", ("paused", "stopped"))

    async def delete(self, request: Request) -> Response:
        caller, found = await self._found(request, change=True)
        name = caller.user_name
        await self._database.write(lambda c: store.remove_study(c, found.id, user_name=name))
        return json_answer(found.name)

    async def delete_all(self, request: Request) -> Response:
        """Remove the caller's searches that are over."""
        caller = await find_caller(request, self._ask)
        check_submitter(caller)
        over = [one for one in await self._of_door(caller) if one.state not in ("running", "paused")]
        gone = [one for one in over if one.user_id == caller.user_id]

        def remove(connection: Any) -> None:
            for one in gone:
                store.remove_study(connection, one.id, user_name=caller.user_name)

        await self._database.write(remove)
        return json_answer([one.name for one in gone])

    # -- algorithms ---------------------------------------------------------------------------------------------------

    def _plugins(self) -> dict[str, InstalledAlgorithm]:
        return {one.name: one for one in self._service.studies.algorithms.all()}

    async def algorithms(self, request: Request) -> Response:
        await find_caller(request, self._ask)
        wanted = request.query_params.get("type", "BUILD_IN").upper()
        if wanted not in ("BUILD_IN", "PLUGIN", "ALL"):
            raise DoorError("bad", f"type must be BUILD_IN, PLUGIN or ALL, got {wanted[:40]!r}")
        built = [_built_in(name) for name in ALGORITHMS] if wanted != "PLUGIN" else []
        plugins = await asyncio.to_thread(self._plugins) if wanted != "BUILD_IN" else {}
        return json_answer([*built, *map(_plugged_in, plugins.values())])

    async def show_algorithm(self, request: Request) -> Response:
        await find_caller(request, self._ask)
        name = request.path_params["algorithm"]
        if name in ALGORITHMS:
            return json_answer(_built_in(name))
        return json_answer(_plugged_in(await self._need_plugin(name)))

    async def _need_plugin(self, name: str) -> InstalledAlgorithm:
        plugins = await asyncio.to_thread(self._plugins)
        if name not in plugins:
            known = ", ".join((*ALGORITHMS, *plugins))
            raise DoorError("not-found", f"an algorithm must be one of {known}, got {name[:80]!r}")
        return plugins[name]

    async def install(self, request: Request) -> Response:
        """Install a plug-in algorithm from its description and its folder; administrators alone may."""
        caller = await find_caller(request, self._ask)
        _check_admin(caller)
        algorithms = self._service.studies.algorithms
        async with read_form(request) as parts:
            if "data" not in parts:
                raise DoorError("bad", "an algorithm must have the part data, got none; send {'name': ...}")
            name = algorithm_name(parts["data"].read(MOST_DATA_BYTES))
            if "file" not in parts:
                raise DoorError(
                    "bad",
                    "an algorithm must have its folder as the part file, got a path on the server; send a tar",
                )
            if name in ALGORITHMS:
                raise DoorError("conflict", f"name must be new, got {name}, which is built in; take another")
            snapshot = await asyncio.to_thread(
                add_archive, self._service.blobs, parts["file"], script_name="optimizer.py"
            )
        try:
            await asyncio.to_thread(
                algorithms.install,
                name,
                self._service.blobs,
                snapshot,
                user=caller.user_name,
                now_ms=now_ms(),
            )
        except FileExistsError as error:
            raise DoorError("conflict", str(error)) from None
        await self._note(caller, "install algorithm", name)
        return json_answer(name)

    async def remove_algorithm(self, request: Request) -> Response:
        caller = await find_caller(request, self._ask)
        _check_admin(caller)
        name = request.path_params["algorithm"]
        if name in ALGORITHMS:
            raise DoorError("conflict", f"an algorithm must be a plug-in to be removed, got {name}")
        await self._need_plugin(name)
        await asyncio.to_thread(self._service.studies.algorithms.remove, name)
        await self._note(caller, "remove algorithm", name)
        return json_answer(name)

    async def _note(self, caller: Caller, verb: str, name: str) -> None:
        await self._database.write(lambda c: add_audit(c, caller.user_name, verb, name))


def read_data(part: IO[bytes]) -> bytes:
    """Return the description of a search; one that is too large is refused."""
    text = part.read(MOST_DATA_BYTES + 1)
    if len(text) > MOST_DATA_BYTES:
        raise DoorError(
            "too-large", f"data must be at most {format_size(MOST_DATA_BYTES, trimmed=True)}, got more"
        )
    return text


def algorithm_name(text: bytes) -> str:
    """Return the name in the description of an algorithm: JSON, or a Python dictionary as WMLA's clients print it."""
    try:
        found = (
            ast.literal_eval(text.decode()) if text.strip()[:1] == b"{" and b"'" in text else json.loads(text)
        )
    except (ValueError, SyntaxError, UnicodeDecodeError, MemoryError, RecursionError):
        found = None
    name = found.get("name") if isinstance(found, dict) else None
    if not isinstance(name, str):
        raise DoorError("bad", "data must be a mapping with a name, got none; send {'name': 'mine'}")
    return name


def _check_admin(caller: Caller) -> None:
    if caller.role != "admin" or caller.job_id is not None:
        raise DoorError(
            "forbidden",
            "an algorithm must be installed and removed by an administrator, with a token of scope admin, got "
            f"{caller.user_name} as {caller.role}; weft token add NAME --scope read,write,admin",
        )


def _built_in(name: str) -> dict[str, Any]:
    return {"name": name, "type": "BUILD_IN", "description": ALGORITHMS[name]}


def _plugged_in(one: InstalledAlgorithm) -> dict[str, Any]:
    text = f"a plug-in of {one.user}"
    return {
        "name": one.name,
        "type": "PLUGIN",
        "description": text,
        "createtime": one.installed_ms,
        "state": "READY",
    }
