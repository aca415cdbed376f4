"""A server with the doors alone: a database in a file, a few users, and uvicorn on a port of its own."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from testing.cluster.waiting import wait_until

from weft.errors import UsageError
from weft.jobs.code.blobs import BlobStore
from weft.jobs.doors.access import Caller, DoorError
from weft.jobs.reports.fanout import PointFanout
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.service import JobService
from weft.jobs.store import tables
from weft.jobs.store.database import Database

ROLES = {"ann": "member", "bob": "member", "eve": "viewer", "root": "admin"}


@dataclass(frozen=True)
class StoreService:
    """The parts of the job service that doors need, without a dispatcher."""

    database: Database
    blobs: BlobStore
    folder: Path
    points: PointFanout = field(default_factory=PointFanout)


class Users:
    """Knows users by Basic NAME:NAME and by Bearer NAME, and the token `job-7` of ann's job 7."""

    def __init__(self) -> None:
        self.sees_all = True

    async def __call__(self, connection: HTTPConnection) -> Caller:
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            name, _, password = base64.b64decode(given).decode().partition(":")
            given = name if name == password else ""
        if given.startswith("job-"):
            return Caller(1, "ann", "member", self.sees_all, int(given[4:]))
        if given not in ROLES:
            raise DoorError("unauthenticated", "a request must come with a token or a password, got none")
        return Caller(list(ROLES).index(given) + 1, given, ROLES[given], self.sees_all)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[StoreService]:
    database = Database.open(f"sqlite:///{tmp_path}/weft.db")
    people = [{"name": name, "role": role, "created_ms": 0} for name, role in ROLES.items()]
    database.submit(lambda connection: connection.execute(sa.insert(tables.user), people)).result()
    yield StoreService(database, BlobStore(tmp_path / "blobs"), tmp_path)
    database.close()


@pytest.fixture
def users() -> Users:
    return Users()


@pytest.fixture
def jobs(service: StoreService) -> JobService:
    """A real service, which runs jobs while routes are served with its lifespan."""
    config = ServiceConfig(folder=service.folder, tick_s=0.2, stop_grace_s=1.0)
    return JobService(config, service.database)


def life_of(service: JobService) -> Callable[[Starlette], Any]:
    """Return what runs a service while it is served, and ends all of its jobs."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        async with service.running():
            yield
            running = service.dispatcher.following.running
            for number in list(running):
                with suppress(UsageError):
                    await service.act(number, "stop", user_name="ann")
            async with asyncio.timeout(30):
                while running:
                    await asyncio.sleep(0.05)

    return life


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """A function that serves routes on this machine and returns their address."""
    started: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(routes: list[Any], lifespan: Any = None) -> str:
        config = uvicorn.Config(
            Starlette(routes=routes, lifespan=lifespan),
            host="127.0.0.1",
            port=0,
            ws="websockets-sansio",
            log_level="error",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        started.append((server, thread))
        wait_until(lambda: server.started or not thread.is_alive(), "the server")
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    yield start
    for server, thread in started:
        server.should_exit = True
        thread.join(60)


def client_of(address: str, name: str) -> httpx.Client:
    return httpx.Client(
        base_url=address, headers={"Authorization": f"Bearer {name}"}, trust_env=False, timeout=60
    )
