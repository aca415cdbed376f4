"""The data side of a job service in one place: staging, the model store, deployments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from weft.jobs.data.deployments import Deployments
from weft.jobs.data.models import ModelShelf
from weft.jobs.data.staging import DataStaging
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob

LOOK_S = 0.5  # between two looks at the servers
SWEEP_S = 3600.0  # between two looks for what the cache can do without
UNUSED_S = 90 * 86400.0  # after which fetched data that no job has begun with is removed


class DataParts:
    """Everything that a service does with data, models and deployments."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.staging = DataStaging(database, folder)
        self.models = ModelShelf(database, folder / "models")
        self.deployments = Deployments(database, folder / "deployments", self.models.store)

    @asynccontextmanager
    async def running(self, is_leader: Callable[[], bool]) -> AsyncIterator[None]:
        """Keep the servers of deployments while the block runs and this service leads; they go on after it."""
        task = asyncio.create_task(self._keep(is_leader), name="deployments")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _keep(self, is_leader: Callable[[], bool]) -> None:
        swept = time.monotonic()
        while True:
            if time.monotonic() - swept > SWEEP_S:
                swept = time.monotonic()
                await asyncio.to_thread(self.staging.sweep, UNUSED_S)
            if is_leader():
                with suppress(sa.exc.SQLAlchemyError, OSError):  # looked at again in a moment
                    await self.deployments.look()
            await asyncio.sleep(LOOK_S)

    async def bring(self, job: StoredJob, spec: JobSpec, folder: Path) -> Mapping[str, str]:
        """Bring the data of a job; return its variables."""
        return await self.staging.bring(job, spec, folder)

    async def carry(self, job: StoredJob, spec: JobSpec, folder: Path) -> None:
        """Carry away what a completed job made."""
        await self.staging.carry(job, spec, folder)
        await self.models.export(job, spec, folder)
