"""A job service on SQLite in a folder of its own, and the code of small jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from weft.jobs.code.snapshot import take_snapshot
from weft.jobs.lifecycle import ENDED, StateError
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.service import JobService
from weft.jobs.spec.read import read_spec
from weft.jobs.store import tables
from weft.jobs.store.attempts import StoredAttempt, attempts_of
from weft.jobs.store.database import Database
from weft.jobs.store.events import events_after
from weft.jobs.store.jobs import StoredJob, need_job
from weft.jobs.store.snapshots import add_snapshot

PATIENCE_S = 120.0  # a loaded machine takes long to import torch
Tell = Callable[..., None]  # runs a story, which is told a desk; settings of the service may follow


@dataclass
class Desk:
    """One service as a test sees it: jobs are submitted as scripts, and awaited."""

    service: JobService
    folder: Path  # for the code of jobs
    scripts: int = field(default=0)

    async def submit(self, script: str = "print('hello')", spec: str = "", **extra: Any) -> int:
        """Submit a job that runs a script; `spec` is more YAML."""
        return (await self.submit_all(script, spec, **extra))[0]

    async def submit_all(
        self, script: str, spec: str = "", files: Mapping[str, str] | None = None, **extra: Any
    ) -> tuple[int, ...]:
        self.scripts += 1
        code = self.folder / f"code-{self.scripts}"
        code.mkdir()
        for name, text in {"job.py": script, **(files or {})}.items():
            (code / name).write_text(text)
        taken = take_snapshot(code)
        for digest in taken.snapshot.blobs:
            self.service.blobs.add(digest, taken.read(digest))
        digest = await self.service.database.write(lambda c: add_snapshot(c, taken.snapshot))
        text = spec if "run:" in spec else f"run: job.py\n{spec}"
        wanted: dict[str, Any] = {"user_id": 1, "user_name": "ann", "snapshot": digest, **extra}
        return await self.service.submit(read_spec(text), **wanted)

    async def job(self, number: int) -> StoredJob:
        return await self.service.database.read(lambda c: need_job(c, number))

    async def attempts(self, number: int) -> tuple[StoredAttempt, ...]:
        return await self.service.database.read(lambda c: attempts_of(c, number))

    async def reach(self, number: int, states: Collection[str] = ENDED) -> StoredJob:
        """Wait until a job is in one of some states."""
        return await self.until(number, lambda job: job.state in states)

    async def until(self, number: int, condition: Callable[[StoredJob], bool]) -> StoredJob:
        deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
        while not condition(job := await self.job(number)):
            if asyncio.get_running_loop().time() > deadline_s:
                dispatcher = self.service.dispatcher
                running = dispatcher.following.running.get(number)
                raise TimeoutError(
                    f"waited in vain: {job}, {running}, {dispatcher.trouble!r}, {self.service.reason(number)}"
                )
            await asyncio.sleep(0.02)
        return job

    async def states(self, number: int) -> list[str]:
        """Return the states that a job went through."""
        events = await self.service.database.read(lambda c: events_after(c, 0, [f"job:{number}"]))
        return [event.data["state"] for event in events if event.kind == "state"]

    async def act(self, number: int, action: str, **arguments: Any) -> None:
        await self.service.act(number, action, user_name="ann", **arguments)

    def path(self, number: int, *parts: str, attempt: int = 1) -> Path:
        return self.service.log_folder(number, attempt).joinpath(*parts)

    async def appears(self, path: Path) -> str:
        """Wait until a job has written a file, and return what is in it."""
        async with asyncio.timeout(PATIENCE_S):
            while not path.exists() or not path.read_text():
                await asyncio.sleep(0.02)
        return path.read_text()


def add_users(database: Database) -> None:
    users = [
        {"id": n, "name": name, "role": "member", "created_ms": 0} for n, name in ((1, "ann"), (2, "bob"))
    ]
    database.submit(lambda c: c.execute(sa.insert(tables.user), users)).result()


@contextmanager
def opened(address: str) -> Iterator[Database]:
    """Open a database in which ann and bob have accounts."""
    database = Database.open(address)
    try:
        add_users(database)
        yield database
    finally:
        database.close()


@asynccontextmanager
async def desk_on(database: Database, folder: Path, **settings: Any) -> AsyncIterator[Desk]:
    """Run a service; all of its jobs are ended with it."""
    config = ServiceConfig(folder=folder / "data", tick_s=0.2, stop_grace_s=1.0, **settings)
    service = JobService(config, database)
    async with service.running():
        desk = Desk(service, folder)
        try:
            yield desk
        finally:
            for number in list(service.dispatcher.following.running):
                with suppress(StateError):  # it has ended meanwhile
                    await desk.service.act(number, "stop", user_name="ann")
                await desk.reach(number)
