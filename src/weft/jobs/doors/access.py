"""Callers at a door: who they are, what they may see and change; bodies of requests, read up to a bound."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec
import sqlalchemy as sa
from starlette.requests import HTTPConnection, Request

from weft.errors import UsageError
from weft.files import write_whole
from weft.jobs.code.blobs import BlobStore
from weft.jobs.reports.fanout import PointFanout
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob, find_job


class DoorError(UsageError):
    """A request that is refused, with the kind of refusal; each door has words and numbers of its own for it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind  # unauthenticated, forbidden, not-found, bad, conflict, too-large, gone


@dataclass(frozen=True)
class Caller:
    """The user behind a request, as the service has found out."""

    user_id: int
    user_name: str
    role: str  # viewer, member, admin
    sees_all: bool = True  # jobs of others, too
    job_id: int | None = None  # a token of one job writes to that job alone

    @property
    def visible_to(self) -> int | None:
        """The user whose jobs alone are shown; None: all are."""
        return None if self.sees_all or self.role == "admin" else self.user_id

    def may_submit(self) -> bool:
        return self.role != "viewer" and self.job_id is None

    def may_change(self, owner_id: int, job_id: int) -> bool:
        """Return whether points, tags and files of a job may come from this user."""
        if self.job_id is not None:
            return job_id == self.job_id
        return self.role == "admin" or (self.role == "member" and owner_id == self.user_id)


# Finds out who asks; raises DoorError("unauthenticated", ...) where nobody is known.
Authenticate: TypeAlias = "Callable[[HTTPConnection], Awaitable[Caller]]"


class DoorService(Protocol):
    """The parts of the job service that doors use."""

    @property
    def database(self) -> Database: ...
    @property
    def blobs(self) -> BlobStore: ...
    @property
    def folder(self) -> Path: ...
    @property
    def points(self) -> PointFanout: ...


class SubmittingService(DoorService, Protocol):
    """The parts of the job service that doors use which start jobs and act on them."""

    async def submit(
        self, spec: JobSpec, *, user_id: int, user_name: str, snapshot: str | None = None
    ) -> tuple[int, ...]: ...
    async def act(
        self, job_id: int, action: str, *, user_name: str, visible_to: int | None = None
    ) -> None: ...
    async def remove(self, job_id: int, *, user_name: str, visible_to: int | None = None) -> None: ...
    def log_folder(self, job_id: int, attempt: int) -> Path: ...


def visible_job(connection: sa.Connection, caller: Caller, job_id: int) -> StoredJob:
    """Return a job that the caller may see; others are not found."""
    found = find_job(connection, job_id, visible_to=caller.visible_to)
    if found is None:
        raise missing_job(job_id)
    return found


def missing_job(job_id: int) -> DoorError:
    """Return the error about a job that there is not."""
    return DoorError("not-found", f"a job must exist, got {job_id}; see weft jobs")


def changeable_job(connection: sa.Connection, caller: Caller, job_id: int) -> StoredJob:
    """Return a job that the caller may change; one that is only visible is refused."""
    found = visible_job(connection, caller, job_id)
    check_may_change(
        caller, job_id, found.user_id, found.user_name, kind=found.kind, parent_id=found.parent_id
    )
    return found


def check_may_change(
    caller: Caller, job_id: int, owner_id: int, owner: str, *, kind: str, parent_id: int | None
) -> None:
    """Refuse a change of a job that the caller may only see."""
    # Runs that a job's script begins within its own are the job's, too.
    within = caller.job_id is not None and kind == "tracked" and parent_id == caller.job_id
    if not within and not caller.may_change(owner_id, job_id):
        raise DoorError("forbidden", f"job {job_id} must be your own to be changed, got one of {owner}")


def check_submitter(caller: Caller) -> None:
    """Refuse users who may not start jobs."""
    if not caller.may_submit():
        raise DoorError(
            "forbidden", f"a submitter must be a member or an admin, got {caller.role}; ask an admin"
        )


async def find_door_job(
    database: Database, caller: Caller, job_id: int, *, door: str, what: str, change: bool = False
) -> StoredJob:
    """Return a job that came by a door, if the caller may see it, or change it; jobs of other kinds are not found."""
    find = changeable_job if change else visible_job
    found = await database.read(lambda connection: find(connection, caller, job_id))
    if found.tags.get("door") != door:
        raise DoorError("not-found", f"{what} must exist, got {job_id}, which is a job of another kind")
    return found


def keep_document(data: Path, job_id: int, name: str, document: Mapping[str, Any]) -> None:
    """Keep what a door was given with a job in the job's folder."""
    place = data / "jobs" / str(job_id) / name
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(place, msgspec.json.encode(document))


def kept_document(data: Path, job_id: int, name: str) -> dict[str, Any]:
    """Return what a door has kept with a job; nothing where that is gone."""
    try:
        return msgspec.json.decode((data / "jobs" / str(job_id) / name).read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}


async def read_bounded(request: Request, most_bytes: int) -> bytes:
    """Return a body; one that is larger is refused before it is read."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > most_bytes:
        raise DoorError(
            "too-large", f"a request must be at most {most_bytes} bytes, got {length}; send less at once"
        )
    parts: list[bytes] = []
    total = 0
    async for part in request.stream():
        total += len(part)
        if total > most_bytes:
            raise DoorError(
                "too-large", f"a request must be at most {most_bytes} bytes, got more; send less at once"
            )
        parts.append(part)
    return b"".join(parts)
