"""A jobs service in a thread, for tests that call it as clients do.

Its only host is drained, so that nothing starts, unless it is told to run jobs on this machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
import sqlalchemy as sa

from weft.jobs.accounts.tokens import allowed_scopes, make_token
from weft.jobs.accounts.users import Role, add_user
from weft.jobs.api.process import RunningService, ServiceOptions, service_on
from weft.jobs.service.config import ServiceConfig
from weft.jobs.store.database import READERS, Database
from weft.jobs.store.tables import host
from weft.serve.server.http.listener import bind

T = TypeVar("T")
CAPACITY = '{"cpus": 64.0, "memory_bytes": 1e12, "gpus": 8.0}'


@dataclass
class WebService:
    """A running service and clients of it."""

    folder: Path
    database: Database
    loop: asyncio.AbstractEventLoop
    running: RunningService
    clients: list[httpx.Client] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.running.url

    def client(self, token: str | None = None, **more: Any) -> httpx.Client:
        """A client with a token, or one that is not logged in."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        made = httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=120, **more)
        self.clients.append(made)
        return made

    def admin(self) -> httpx.Client:
        return self.client(self.running.token)

    def user(self, name: str, role: Role = "member", scopes: tuple[str, ...] | None = None) -> httpx.Client:
        """A client of a new user."""

        def work(connection: sa.Connection) -> str:
            account = add_user(connection, name, role)
            given = scopes if scopes is not None else sorted(allowed_scopes(role))
            return make_token(connection, account.id, name="test", scopes=given)

        return self.client(self.database.submit(work).result(30))

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        return self.database.submit(work).result(30)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the service's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(30)


class ServiceThread:
    """The thread in which a service runs."""

    def __init__(self, folder: Path, options: dict[str, Any], *, runs_jobs: bool = False) -> None:
        self._folder, self._runs_jobs = folder, runs_jobs
        self._options = ServiceOptions(data=folder, port=0, **options)
        self._started: Future[WebService] = Future()
        self._ending: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="jobs-service")

    def __enter__(self) -> WebService:
        self._thread.start()
        self.service = self._started.result(60)
        return self.service

    def __exit__(self, *error: object) -> None:
        for client in self.service.clients:
            client.close()
        self._ending()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _serve(self) -> None:
        ending = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._ending = lambda: loop.call_soon_threadsafe(ending.set)
        address = self._options.database or f"sqlite:///{self._folder}/weft.db"
        database = await asyncio.to_thread(Database.open, address)
        listening = bind("127.0.0.1", 0)
        config = ServiceConfig(folder=self._folder, this_host=False, tick_s=3600.0)
        if self._runs_jobs:
            config = ServiceConfig(folder=self._folder, tick_s=0.2, stop_grace_s=1.0)
        await _start_threads(database)
        try:
            if not self._runs_jobs:
                database.submit(_add_host).result(30)
            async with service_on(self._options, database, listening, config) as running:
                self._started.set_result(WebService(self._folder, database, loop, running))
                await ending.wait()
        finally:
            listening.close()
            database.close()


async def _start_threads(database: Database) -> None:
    """Have all threads of pools begin now: those that begin within a test look like leaks of that test."""
    workers = 4
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(workers, "asyncio"))
    here, there = threading.Barrier(workers), threading.Barrier(READERS)
    await asyncio.gather(*(asyncio.to_thread(here.wait) for _ in range(workers)))
    await asyncio.gather(*(database.read(lambda _: there.wait()) for _ in range(READERS)))


def _add_host(connection: sa.Connection) -> None:
    row = {
        "name": "paper",
        "state": "drained",
        "labels": "[]",
        "rack": "",
        "capacity": CAPACITY,
        "seen_ms": 0,
    }
    connection.execute(sa.insert(host), row)
