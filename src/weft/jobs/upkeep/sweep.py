"""The sweep: carries out what retention decides, at once on request, and every hour where bounds are set."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import sqlalchemy as sa

from weft.errors import WeftError
from weft.jobs.service.service import JobService
from weft.jobs.store.events import now_ms
from weft.jobs.upkeep.retention import (
    Removal,
    RetentionPolicy,
    candidates,
    drop_blobs,
    drop_old_rows,
    plan_removals,
)

EVERY_S = 3600.0


async def sweep(
    service: JobService, policy: RetentionPolicy, *, user_name: str, dry_run: bool = True
) -> tuple[Removal, ...]:
    """Remove the jobs that are kept no longer, and what only they needed; a dry run only tells which."""
    jobs, other = await service.database.read(lambda c: candidates(c, service.folder))
    removals = plan_removals(jobs, policy, at_ms=now_ms(), other_bytes=other)
    if dry_run:
        return removals
    done = []
    for removal in removals:
        with suppress(WeftError):  # it was pinned, retried or removed meanwhile
            await service.remove(removal.job.id, user_name=user_name)
            done.append(removal)
    await service.database.write(drop_old_rows)
    await service.database.write(lambda c: drop_blobs(c, service.blobs))
    return tuple(done)


@asynccontextmanager
async def sweeping(service: JobService, policy: RetentionPolicy) -> AsyncIterator[None]:
    """Sweep every hour while the block runs, if there are bounds; old rows go in any case."""
    task = asyncio.create_task(_sweep_hourly(service, policy), name="retention")
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _sweep_hourly(service: JobService, policy: RetentionPolicy) -> None:
    while True:
        await asyncio.sleep(EVERY_S)
        with suppress(sa.exc.SQLAlchemyError, OSError):  # the next hour is as good
            if policy == RetentionPolicy():
                await service.database.write(drop_old_rows)
            else:
                await sweep(service, policy, user_name="retention", dry_run=False)
