"""The packer: moves batches of points into chunks, a few at a time, so that other writes do not wait for it.

Jobs that report at the same pace would all be due at once, and then everything that reads their points would wait. So
jobs differ in how many batches are enough, and after each job the packer rests for as long as it worked.
"""

from __future__ import annotations

import asyncio
import logging
import time

import sqlalchemy as sa

from weft.jobs.store.database import Database
from weft.jobs.store.metrics import pack_job
from weft.jobs.store.tables import metric_batch

PAUSE_S = 2.0  # between two looks for batches to pack
ENOUGH = 64  # batches of a job that are worth packing; readers merge fewer as they are
AT_ONCE = 256  # batches packed in one transaction
SHARE = 0.5  # of the time that packing may take while there is more to pack
LONGEST_REST_S = 0.5  # after one job
_log = logging.getLogger("weft.jobs.reports")


class Packer:
    """Packs the batches of all jobs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self) -> None:
        """Pack for ever."""
        while True:
            try:
                for job_id in await self._database.read(jobs_with_batches):
                    began = time.monotonic()
                    await self.pack(job_id)
                    took_s = time.monotonic() - began
                    await asyncio.sleep(min(LONGEST_REST_S, took_s * (1 - SHARE) / SHARE))
            except (sa.exc.SQLAlchemyError, OSError):
                _log.exception("metrics could not be packed; trying again")
            await asyncio.sleep(PAUSE_S)

    async def pack(self, job_id: int) -> None:
        """Pack all batches of a job."""
        while await self._database.write(lambda connection: pack_job(connection, job_id, AT_ONCE)) == AT_ONCE:
            pass


def jobs_with_batches(connection: sa.Connection, least: int = ENOUGH) -> list[int]:
    """Return the jobs that have at least so many batches which are not packed, or up to twice as many by their ids."""
    count, job_id = sa.func.count(), metric_batch.c.job_id
    found = sa.select(job_id).where(metric_batch.c.data.is_not(None))
    return list(connection.scalars(found.group_by(job_id).having(count >= least + job_id % least)))
