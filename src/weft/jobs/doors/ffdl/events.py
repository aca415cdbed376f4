"""FfDL's `/events`: addresses that get messages about one training, as entries of `notify` in its specification.

Messages are those of webhooks, signed with the owner's key; FfDL's type of event is one of our words, or `status` for
every change of state. An endpoint is known by the name that its client gave it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import msgspec
import sqlalchemy as sa
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from weft.jobs.doors.access import Caller, DoorError, read_bounded
from weft.jobs.spec.model import JobEvent, JobSpec, NotifySpec
from weft.jobs.spec.read import resolve
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_audit
from weft.jobs.store.jobs import StoredJob, spec_of
from weft.jobs.store.tables import job as job_table
from weft.jobs.store.tables import tag

STATUS = "status"  # every change of state
EVENTS: tuple[JobEvent, ...] = get_args(JobEvent)
MOST_ENDPOINTS = 20
_TAG = "endpoint."  # begins the tag that keeps the name, the type and the address of an endpoint
Find = Callable[..., Awaitable[tuple[Caller, StoredJob]]]


class TrainingEvents:
    """The endpoints of trainings; `find` returns the caller and the training of a request."""

    def __init__(self, database: Database, find: Find) -> None:
        self._database, self._find = database, find

    async def list_all(self, request: Request) -> Response:
        """Return the endpoints of a training by type of event."""
        _, job = await self._find(request)
        found: dict[str, list[dict[str, str]]] = {}
        for name, (kind, url) in sorted(_endpoints(job).items()):
            found.setdefault(kind, []).append({"id": name, "url": url})
        return _json({"events": [{"type": kind, "endpoints": ends} for kind, ends in found.items()]})

    async def list(self, request: Request) -> Response:
        _, job = await self._find(request)
        kind = _kind(request)
        ends = [
            {"id": name, "url": url} for name, (one, url) in sorted(_endpoints(job).items()) if one == kind
        ]
        return _json({"type": kind, "endpoints": ends})

    async def show(self, request: Request) -> Response:
        _, job = await self._find(request)
        name, url = self._endpoint(request, job)
        return _json({"id": name, "url": url})

    async def add(self, request: Request) -> Response:
        """Tell another address, or give a known endpoint another one."""
        caller, job = await self._find(request, change=True)
        kind, name = _kind(request), _name(request)
        try:
            body = msgspec.json.decode(await read_bounded(request, 1 << 16), type=dict[str, Any])
        except msgspec.MsgspecError:
            body = {}
        url = body.get("url")
        if not isinstance(url, str):
            raise DoorError("bad", 'an endpoint must have a url, got none; send {"url": "https://..."}')
        ends = {**_endpoints(job), name: (kind, url)}
        if len(ends) > MOST_ENDPOINTS:
            raise DoorError("bad", f"a training must have at most {MOST_ENDPOINTS} endpoints, got more")
        await self._keep(caller, job, ends)
        return _json({"id": name, "url": url}, 201)

    async def remove(self, request: Request) -> Response:
        caller, job = await self._find(request, change=True)
        name, _ = self._endpoint(request, job)
        await self._keep(caller, job, {one: end for one, end in _endpoints(job).items() if one != name})
        return _json({"id": name})

    def _endpoint(self, request: Request, job: StoredJob) -> tuple[str, str]:
        kind, name = _kind(request), _name(request)
        found = _endpoints(job).get(name)
        if found is None or found[0] != kind:
            raise DoorError("not-found", f"an endpoint must be known, got {name[:80]!r} of {kind}")
        return name, found[1]

    async def _keep(self, caller: Caller, job: StoredJob, ends: dict[str, tuple[str, str]]) -> None:
        """Write the endpoints as tags, by which they are found, and into `notify`, by which they are told."""
        before = _endpoints(job)

        def write(connection: sa.Connection) -> None:
            spec = spec_of(connection, job.id)
            known = {_notify(*end) for end in before.values()}
            given = tuple(one for one in spec.notify if one not in known)
            changed = msgspec.structs.replace(
                spec, notify=(*given, *(_notify(*end) for end in ends.values()))
            )
            resolve(changed)  # refuses what is no address
            _write_spec(connection, job.id, changed)
            mine = (tag.c.job_id == job.id) & tag.c.name.startswith(_TAG, autoescape=True)
            connection.execute(sa.delete(tag).where(mine))
            for name, (kind, url) in ends.items():
                row = {"job_id": job.id, "name": _TAG + name, "value": f"{kind} {url}"}
                connection.execute(sa.insert(tag).values(row))
            add_audit(connection, caller.user_name, "change endpoints", f"job {job.id}")

        await self._database.write(write)


def _write_spec(connection: sa.Connection, job_id: int, spec: JobSpec) -> None:
    text = msgspec.json.encode(spec).decode()
    connection.execute(sa.update(job_table).where(job_table.c.id == job_id).values(spec=text))


def _notify(kind: str, url: str) -> NotifySpec:
    on = tuple(word for word in EVENTS if word != "advice") if kind == STATUS else (kind,)
    return NotifySpec(webhook=url, on=on)  # type: ignore[arg-type]


def _endpoints(job: StoredJob) -> dict[str, tuple[str, str]]:
    """Return type and address of each endpoint by its name."""
    found = {}
    for name, value in job.tags.items():
        if name.startswith(_TAG):
            kind, _, url = value.partition(" ")
            found[name.removeprefix(_TAG)] = kind, url
    return found


def _kind(request: HTTPConnection) -> str:
    kind = str(request.path_params["event_type"])
    if kind != STATUS and kind not in EVENTS:
        raise DoorError("bad", f"a type of event must be {STATUS} or {', '.join(EVENTS)}, got {kind[:40]!r}")
    return kind


def _name(request: HTTPConnection) -> str:
    name = str(request.path_params["endpoint"])
    if not name.isprintable() or len(name) > 80:
        raise DoorError("bad", f"an endpoint's name must be short and printable, got {name[:80]!r}")
    return name


def _json(answer: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")
