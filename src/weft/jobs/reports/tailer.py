"""The tailer: follows the run directories of active jobs, and brings what they report into the store and to watchers.

    tailer = Tailer(database, points)
    async with tailer.running():
        tailer.follow(7, attempt=1, run_dir=..., spec=...)
        ...
        await tailer.stop(7)        reads what is left first

A database that is away costs nothing but time: what was not stored is read again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import sqlalchemy as sa

from weft.jobs.reports.fanout import PointFanout
from weft.jobs.reports.followed import FollowedJob
from weft.jobs.reports.packer import Packer
from weft.jobs.reports.tails import NewPieces, TailedPiece, positions
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database

POLL_S = 0.1  # from one look at jobs that report to the next
LOOK_SHARE = 2 / 3  # of the time that looks may take
AGAIN_S = 1.0  # after the database refused something
_log = logging.getLogger("weft.jobs.reports")


class Tailer:
    """Follows jobs; used in one event loop. Files are read in a thread of its own."""

    def __init__(self, database: Database, points: PointFanout) -> None:
        self._database, self._points = database, points
        self._jobs: dict[int, FollowedJob] = {}
        self._thread = ThreadPoolExecutor(1, "tailer")
        self._turning = asyncio.Lock()
        self._packer = Packer(database)
        self.on_points: list[Callable[[int], None]] = []  # told of each job whose new points are in the store

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow jobs until the end of the block."""
        tasks = [asyncio.create_task(self._follow_all()), asyncio.create_task(self._packer.run())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
            self._thread.shutdown()

    def follow(
        self, job_id: int, attempt: int, run_dir: Path, spec: JobSpec, *, work_dir: Path | None = None
    ) -> None:
        """Follow an attempt at a job, from where the store was left; a second call changes nothing."""
        known = self._jobs.get(job_id)
        if known is None or known.attempt != attempt:
            folder = work_dir if work_dir is not None else run_dir.parent / "code"
            self._jobs[job_id] = FollowedJob(job_id, attempt, run_dir, spec, folder)

    def followed(self) -> tuple[FollowedJob, ...]:
        """Return the jobs that are followed."""
        return tuple(self._jobs.values())

    async def stop(self, job_id: int) -> None:
        """Read what a job has left, and follow it no more."""
        followed = self._jobs.get(job_id)
        if followed is None:
            return
        async with self._turning:
            while await self._turn([followed], last=True):
                pass
        if self._jobs.get(job_id) is followed:
            del self._jobs[job_id]
        await self._packer.pack(job_id)

    # -- the loop ---------------------------------------------------------------------------------

    async def _follow_all(self) -> None:
        while True:
            began = time.monotonic()
            try:
                due = [followed for followed in self._jobs.values() if followed.is_due(began)]
                if due:
                    async with self._turning:
                        await self._turn(due)
            except Exception:
                _log.exception("reports could not be stored; trying again")
                await asyncio.sleep(AGAIN_S)
                continue
            took_s = time.monotonic() - began
            await asyncio.sleep(max(POLL_S - took_s, took_s * (1 - LOOK_SHARE) / LOOK_SHARE))

    async def _turn(self, jobs: list[FollowedJob], *, last: bool = False) -> bool:
        """Read all jobs once, store what they report, and notify the watchers; return whether there was anything."""
        loop = asyncio.get_running_loop()
        read = await loop.run_in_executor(self._thread, self._read, jobs, last)
        failure: BaseException | None = None
        for followed, pieces, stored in read:
            try:
                added = await asyncio.wrap_future(stored)
            except (sa.exc.SQLAlchemyError, OSError) as error:
                followed.start_again()
                failure = error
                continue
            self._publish(followed, pieces, added)
        if failure is not None:
            raise failure
        return bool(read)

    def _read(
        self, jobs: list[FollowedJob], last: bool
    ) -> list[tuple[FollowedJob, list[TailedPiece], Future[list[bool]]]]:
        """Read files, and have what they hold stored; in the tailer's thread."""
        found: list[tuple[FollowedJob, list[TailedPiece]]] = []
        for followed in jobs:
            if not followed.is_placed:
                followed.place(self._database.ask(lambda c, followed=followed: positions(c, followed.job_id)))  # type: ignore[misc]
            if pieces := followed.read(last=last):
                found.append((followed, pieces))
        # All at once, after all were read: so they are in one transaction.
        return [
            (followed, pieces, self._database.submit(NewPieces(followed.job_id, tuple(pieces))))
            for followed, pieces in found
        ]

    def _publish(self, followed: FollowedJob, pieces: list[TailedPiece], added: list[bool]) -> None:
        for piece, is_new in zip(pieces, added, strict=True):
            if is_new:
                followed.settle(piece)
                if self._points.watched(followed.job_id):
                    self._points.publish(followed.job_id, piece.found.by_name())
        if any(is_new and piece.found.points for piece, is_new in zip(pieces, added, strict=True)):
            for tell in self.on_points:
                tell(followed.job_id)
        if not all(added):
            followed.start_again()
