"""The attempts that have been started, each driven from its state in the store to its end.

A step that fails, or that a killed service left undone, is taken again: which one it is follows from the job's state
alone. Steps are slow (staging, starting a process), so each is a task of its own, one at a time for a job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from weft.errors import WeftError
from weft.jobs.reports.tailer import Tailer
from weft.jobs.service.attempts.command import is_elastic
from weft.jobs.service.attempts.keepers import KeeperProcess, Keepers, is_locked
from weft.jobs.service.attempts.processes import boot_id
from weft.jobs.service.attempts.records import RunningAttempt
from weft.jobs.service.attempts.steps import Attempts
from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.index import KnownJob, now_s
from weft.jobs.service.lease import LeaseLost
from weft.jobs.store.attempts import AttemptShare, StoredAttempt
from weft.jobs.store.jobs import change_job

AGAIN_S = 0.1  # before a keeper that is just being started is looked for again
GIVE_BACK_S = 30.0  # before a job is started again whose files could not be written
MOST_ADOPTIONS = 10  # of one attempt, within
ADOPTION_SPAN_S = 300.0
LONGEST_ADOPTION_PAUSE_S = 30.0
_log = logging.getLogger(__name__)


class Following:
    """All attempts that have not ended, each with what it is told to become.

    `refresh` reads a job again, `freed` is told of a job that holds nothing any more, `resized` of one that has the
    size it was told to have.
    """

    def __init__(
        self,
        config: ServiceConfig,
        attempts: Attempts,
        keepers: Keepers,
        tailer: Tailer,
        *,
        refresh: Callable[[set[int]], Awaitable[None]],
        freed: Callable[[int], None],
        resized: Callable[[RunningAttempt], None],
        wake: Callable[[], None],
    ) -> None:
        self._config, self._attempts, self._keepers, self._tailer = config, attempts, keepers, tailer
        self._refresh, self._freed, self._resized, self._wake = refresh, freed, resized, wake
        self.running: dict[int, RunningAttempt] = {}
        self.trouble = ""

    def add(self, known: KnownJob, attempt: StoredAttempt) -> RunningAttempt:
        """Follow an attempt that is recorded in the store."""
        running = self.running[known.job.id] = RunningAttempt(known, attempt)
        self._drive(running)
        return running

    @property
    def busy(self) -> bool:
        """Return whether something is about to change that nobody will tell of."""
        return any(
            running.target is not None or running.known.job.state == "starting"
            for running in self.running.values()
        )

    async def close(self) -> None:
        """Follow nothing any more; steps that are being taken are broken off."""
        tasks = [running.task for running in self.running.values() if running.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._keepers.release()
        self.running.clear()

    def keeper_ended(self, job_id: int, code: int | None) -> None:
        """Note that a job's keeper is gone."""
        running = self.running.get(job_id)
        if running is not None:
            running.ended, running.code, running.watched = True, code, False
            self._drive(running)
        self._wake()

    async def turn(self) -> None:
        """See to every attempt."""
        for running in list(self.running.values()):
            self._drive(running)
            if running.task is None and running.watched:
                await self._watch(running)

    # -- steps ------------------------------------------------------------------------------------

    def _drive(self, running: RunningAttempt) -> None:
        """Take the next step, if it is time for one."""
        if running.task is not None or running.id not in self.running:
            return
        state = running.known.job.state
        if state == "staging":
            self._take(running, self._stage(running))
        elif state == "storing":
            self._take(running, self._store(running))
        elif running.ended:
            self._take(running, self._end(running))
        elif not running.watched and running.attempt.keeper_pid is None:
            self._take(running, self._start(running))
        elif not running.watched:
            self._attach(running)

    def _take(self, running: RunningAttempt, step: Coroutine[Any, Any, None]) -> None:
        running.task = asyncio.create_task(self._guard(running, step), name=f"job-{running.id}")

    async def _guard(self, running: RunningAttempt, step: Coroutine[Any, Any, None]) -> None:
        try:
            await step
        except LeaseLost:
            pass  # the next turn of the dispatcher notices, too
        except (sa.exc.SQLAlchemyError, OSError) as error:
            self.trouble = " ".join(str(getattr(error, "orig", None) or error).split())
            _log.error("job %s: %s", running.id, self.trouble)
            await asyncio.sleep(self._config.tick_s)
        except Exception:
            _log.exception("job %s", running.id)
            await asyncio.sleep(self._config.tick_s)
        finally:
            running.task = None
            self._wake()

    async def _stage(self, running: RunningAttempt) -> None:
        """Write the files of an attempt; a job that a user has stopped meanwhile ends here."""
        try:
            await self._attempts.stage(running)
        except OSError as error:
            text = f"its files could not be written: {error}; tried again in {GIVE_BACK_S:.0f} s"
            await self._attempts.give_back(running, text, GIVE_BACK_S)
            await self._drop(running)
        except WeftError as error:
            await self._refuse(running, error)
        else:
            await self._refresh({running.id})
            if running.known.job.state == "starting":
                await self._start(running)
            else:
                await self._drop(running)

    async def _refuse(self, running: RunningAttempt, error: WeftError) -> None:
        """Fail a job that cannot be started."""
        if isinstance(error, LeaseLost):
            raise error
        await self._attempts.refuse(running, str(error))
        await self._drop(running)

    async def _start(self, running: RunningAttempt) -> None:
        """Start a keeper, or find the one that a killed service started."""
        try:
            keeper = await self._attempts.start(running)
        except WeftError as error:
            await self._refuse(running, error)
            return
        if keeper is None:
            await asyncio.sleep(AGAIN_S)
        else:
            self._follow_keeper(running, keeper)

    def _follow_keeper(self, running: RunningAttempt, keeper: KeeperProcess) -> None:
        running.ended, running.code = False, None
        running.watched = self._keepers.watch(running.id, keeper)
        self._tailer.follow(running.id, running.attempt.number, self._run_dir(running), running.known.spec)
        if not running.watched:
            running.ended, running.code = True, self._keepers.code_of(keeper)

    def _attach(self, running: RunningAttempt) -> None:
        """Follow a keeper that was started before; one on another machine lives as long as its lock is held."""
        attempt = running.attempt
        keeper = KeeperProcess(attempt.keeper_pid or 0, attempt.keeper_started or 0)
        if attempt.boot_id == boot_id():
            self._follow_keeper(running, keeper)
        elif not is_locked(self._attempts.folder(attempt)):
            running.ended = True
        if running.ended:
            self._drive(running)

    async def _end(self, running: RunningAttempt) -> None:
        """Judge an attempt whose keeper is gone; an elastic run that goes on gets another keeper."""
        if await self._adopt(running):
            return
        await self._tailer.stop(running.id)  # what it reported is there before its end is told
        following = await self._attempts.finish(running)
        self._freed(running.id)
        if following.state == "storing":
            await self._refresh({running.id})
        else:
            await self._drop(running)

    async def _store(self, running: RunningAttempt) -> None:
        await self._attempts.store(running)
        await self._drop(running)

    async def _drop(self, running: RunningAttempt) -> None:
        """Follow an attempt no more, and look at what becomes of its job."""
        del self.running[running.id]
        self._freed(running.id)
        await self._refresh({running.id})

    def _run_dir(self, running: RunningAttempt) -> Path:
        return self._attempts.folder(running.attempt) / "run"

    async def _adopt(self, running: RunningAttempt) -> bool:
        """Start another keeper for a run that goes on without its own; False if there is nothing to adopt.

        Elastic runs do, and those in pods of a cluster.
        """
        run = self._run_dir(running)
        in_pods = running.known.resolved.spec.engine == "kubernetes"
        sign = run / ("kubernetes.json" if in_pods else "elastic/control.json")
        begun = sign.exists() and not (run / "outcome.json").exists()
        elastic = is_elastic(running.known.resolved)
        if not (elastic or in_pods) or not begun or running.code == 0 or running.attempt.asked == "kill":
            return False
        running.adoptions = [at for at in running.adoptions if now_s() - at < ADOPTION_SPAN_S] + [now_s()]
        if len(running.adoptions) > MOST_ADOPTIONS:
            self._keepers.kill(running.id, running.attempt.token)  # or it would go on beside the next attempt
            return False
        await asyncio.sleep(min(LONGEST_ADOPTION_PAUSE_S, 2.0 ** (len(running.adoptions) - 1) - 1))
        keeper = await self._attempts.adopt(running)
        if keeper is None:
            return False
        self._follow_keeper(running, keeper)
        return True

    # -- while it runs ----------------------------------------------------------------------------

    async def _watch(self, running: RunningAttempt) -> None:
        """Note that a job runs, hold it to its time, and ask it to end if it shall."""
        job, limit_s = running.known.job, running.known.resolved.time_limit_s
        if job.state == "starting" and self._attempts.has_begun(running):
            await self._attempts.say_running(running)
            await self._refresh({running.id})
        late = limit_s is not None and now_s() > running.attempt.started_ms / 1000 + limit_s
        if job.wanted is None and late:
            await self._attempts.write(lambda c: change_job(c, job.id, wanted="time-out"))
            await self._refresh({running.id})
        if running.known.job.wanted is not None:
            await self._attempts.ask(running)
        elif running.target is not None and await self._attempts.has_size(running, running.target):
            await self._attempts.note_shares(running, running.target)
            running.target = None
            self._resized(running)

    def shares(self) -> dict[int, tuple[AttemptShare, ...]]:
        """Return what each job holds."""
        return {job_id: running.attempt.shares for job_id, running in self.running.items()}
