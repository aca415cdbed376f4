"""Carrying out a plan: start the workers, pass on what they print, end all when one fails.

The agents do the work on their hosts; this is the one loop in the launcher that hears them.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty

from weft.launch.agent.agent import BEAT_S, ORPHAN_GRACE_S
from weft.launch.agent.memory import describe_excess
from weft.launch.agent.protocol import (
    AgentClosed,
    CommandFailed,
    HostUsed,
    SignalReceived,
    StartWorkers,
    StopWorkers,
    WatchUsage,
    WorkerExited,
    WorkerOutput,
    WorkerOverMemory,
    WorkerPoints,
    WorkersDone,
    WorkerTask,
)
from weft.launch.agent.wire import text_to_bytes
from weft.launch.control.agents import AgentPool, PoolEvent
from weft.launch.control.console import Console
from weft.launch.control.outcome import (
    Failure,
    Outcome,
    RankRecord,
    describe_code,
    exception_line,
    first_to_fail,
    first_untold,
    last_traceback,
    log_path,
    memory_verdict,
    shell_code,
)
from weft.launch.control.usage_log import UsageLog
from weft.launch.plan import LaunchPlan
from weft.reporting.names import VARIABLE as METRICS_VARIABLE
from weft.reporting.names import file_channel
from weft.secret import VARIABLE as SECRET_VARIABLE
from weft.secret import new_secret

STARTER = -1  # the "rank" of a program that starts the workers for us (mpirun, srun)
SETTLE_S = 0.5  # how long a rank that has already raised may take to end by itself
_STOPPED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def tasks_of(plan: LaunchPlan) -> dict[str, tuple[WorkerTask, ...]]:
    """The workers of each host, as its agent is told them."""
    return {
        host.name: tuple(
            WorkerTask(
                worker.rank,
                plan.argv,
                dict(worker.env),
                worker.placement.cpus if worker.placement else (),
                worker.placement.numa if worker.placement else (),
            )
            for worker in host.workers
        )
        for host in plan.hosts
    }


Translate = Callable[[PoolEvent], Sequence[PoolEvent]]


class Conductor:
    """One run, from the first start to the last process gone."""

    def __init__(
        self,
        plan: LaunchPlan,
        crew: AgentPool,
        tasks: Mapping[str, Sequence[WorkerTask]],
        console: Console,
        *,
        run_id: str,
        run_dir: Path | None = None,
        grace_s: float,
        lost_after_s: float,
        sweep: Callable[[str], object],
        replan: Callable[[Collection[str]], LaunchPlan | None] | None = None,
        translate: Translate | None = None,
        polite: Callable[[int], int] = int,
    ) -> None:
        self._plan = plan
        self._crew = crew
        self._tasks = tasks
        self._console = console
        self._run_id = run_id
        self._secret = new_secret()
        self._run_dir = run_dir
        self._grace_s = grace_s
        self._lost_after_s = lost_after_s
        self._sweep = sweep  # ends what is left of the run on a host whose agent is gone
        self._replan = replan  # a plan without the hosts that are lost, if that is wanted
        self._translate = translate
        self._polite = polite  # the signal by which a starter is asked to give its workers another one
        self._usage = UsageLog(console.keep)
        self._interrupted_by: int | None = None
        self._lost: dict[str, tuple[str, int]] = {}  # why, and the exit code that follows from it
        self._begin()

    def _begin(self) -> None:
        """Forget the last attempt."""
        self._records = {worker.rank: RankRecord() for host in self._plan.hosts for worker in host.workers}
        self._starter = RankRecord()
        self._done: set[str] = set()
        self._stopped_at: float | None = None
        self._stop_due: float | None = None

    def run(self) -> Outcome:
        """Run to the end, restarting as often as the plan allows."""
        began = time.monotonic()
        restarts = 0
        # A handler may run in the middle of anything we do, so it only leaves a note.
        with signals_to(lambda number: self._crew.inbox.put(("", SignalReceived(number)))):
            self._watch_usage()
            while True:
                self._attempt(restarts)
                outcome = self._outcome(time.monotonic() - began, restarts)
                if outcome.ok or self._interrupted_by or restarts >= self._plan.max_restarts:
                    return outcome
                if self._lost and not self._go_without_the_lost():
                    return outcome
                restarts += 1
                assert outcome.failure is not None
                who = outcome.failure.host if outcome.failure.rank is None else f"rank {outcome.failure.rank}"
                self._console.say(
                    f"weft: {who} failed ({outcome.failure.reason}); restart {restarts} of {self._plan.max_restarts}"
                    + (f" with {self._plan.world_size} workers" if outcome.failure.rank is None else "")
                )
                self._begin()

    @property
    def _planned(self) -> set[str]:
        return {host.name for host in self._plan.hosts}

    def _watch_usage(self) -> None:
        """Have every host tell what the run uses of it; where a starter is all there is, its agent here does."""
        if self._run_dir is not None:
            there = self._planned & self._crew.connections.keys()
            self._crew.tell(WatchUsage(self._run_id), there or self._tasks)

    def _go_without_the_lost(self) -> bool:
        """Plan what follows for the hosts that are left, as torchrun does with --nnodes MIN:MAX; False: too few are."""
        plan = self._replan(self._lost.keys()) if self._replan else None
        if plan is None:
            return False
        for host in self._lost:
            self._crew.forget(host)
        self._lost.clear()
        self._plan, self._tasks = plan, tasks_of(plan)
        return True

    def _attempt(self, attempt: int) -> None:
        env = {
            **dict(self._plan.env),
            "TORCHELASTIC_RUN_ID": self._run_id,
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
            "WEFT_RUN_ID": self._run_id,
            SECRET_VARIABLE: self._secret,
        }
        if self._run_dir is not None:
            env["WEFT_RUN_DIR"] = str(self._run_dir.absolute())
        for host, tasks in self._tasks.items():
            workers = tuple(self._with_channel(host, task) for task in tasks)
            order = StartWorkers(attempt, self._plan.cwd, env, workers, self._plan.memory_bytes)
            self._crew.tell(order, [host])
        while not self._over():
            self._turn()

    def _with_channel(self, host: str, task: WorkerTask) -> WorkerTask:
        """Have a worker on this machine write what it logs into the run directory itself; others tell their agent."""
        here = not self._crew.connections[host].command.remote
        if self._run_dir is None or not here or task.rank == STARTER:
            return task
        channel = file_channel(str(self._run_dir.absolute()), task.rank)
        return task._replace(env={**task.env, METRICS_VARIABLE: channel})

    def _over(self) -> bool:
        return self._done | self._lost.keys() >= self._tasks.keys()

    def _turn(self) -> None:
        try:
            host, event = self._crew.hear(BEAT_S if self._stop_due is None else 0.05)
        except Empty:
            self._watch()
            return
        for translated in self._translate(event) if self._translate else (event,):
            self._hear(host, translated)
        if self._crew.inbox.empty():
            self._watch()

    def _hear(self, host: str, event: PoolEvent) -> None:
        now = time.monotonic()
        match event:
            case WorkerOutput(rank, stream, text):
                self._output(rank, stream, text, now)
            case HostUsed():
                self._usage.hear(host if host in self._planned else self._plan.hosts[0].name, event)
            case WorkerPoints(rank, text):
                self._console.keep_points(rank, text_to_bytes(text))
            case WorkerOverMemory(rank, used_bytes, limit_bytes):
                record = self._record(rank)
                record.verdict = describe_excess(f"rank {rank}", used_bytes, limit_bytes)
                self._console.say(f"weft: {record.verdict}")
            case WorkerExited(rank, code):
                record = self._record(rank)
                record.code, record.ended_at = code, now
                if record.failed:
                    self._stop_soon(now)
            case WorkersDone():
                self._done.add(host)
            case AgentClosed() if host in self._tasks and host not in self._done and host not in self._lost:
                self._lose(host, f"lost: {self._crew.explain(host)}")
                self._sweep(host)
            case CommandFailed(during, message, code):
                self._lose(host, f"could not {during}: {message}", code)
            case SignalReceived(number):
                self._interrupt(number)

    def _record(self, rank: int) -> RankRecord:
        return self._starter if rank == STARTER else self._records[rank]

    def _output(self, rank: int, stream: str, text: str, now: float) -> None:
        if stream == "err":
            self._record(rank).hear(text, now)
        if rank == STARTER:
            self._console.say(text.rstrip("\n"))
        else:
            self._console.write(rank, stream, text_to_bytes(text))

    def _watch(self) -> None:
        """Carry out what is due by the clock: a postponed stop, the loss of a silent host."""
        now = time.monotonic()
        if self._stop_due is not None and now >= self._stop_due:
            self._stop(signal.SIGTERM)
        for host, connection in self._crew.connections.items():
            silent_s = now - connection.heard_at
            if connection.command.remote and host not in self._lost and silent_s > self._lost_after_s:
                self._lose(host, f"lost: no sign of life for {silent_s:.1f} s; is it up, is its cable in?")

    def _stop_soon(self, now: float) -> None:
        """Stop the others, but let a rank that raised earlier tell its own exit code first."""
        if self._stopped_at is not None or self._stop_due is not None:
            return
        ending = [record for record in self._records.values() if record.complained_at and record.code is None]
        self._stop_due = now + (SETTLE_S if ending else 0.0)

    def _stop(self, number: int, grace_s: float | None = None) -> None:
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()
        self._stop_due = None
        grace_s = self._grace_s if grace_s is None else grace_s
        self._crew.tell(StopWorkers(self._polite(number), grace_s))

    def _interrupt(self, number: int) -> None:
        if self._interrupted_by is None:
            self._interrupted_by = number
            self._console.say(
                f"weft: {signal.Signals(number).name}: ending the workers (again to end them at once)"
            )
            self._stop(number)
        else:
            self._crew.tell(StopWorkers(signal.SIGKILL, 0.0))

    def _lose(self, host: str, why: str, code: int = 1) -> None:
        self._lost[host] = why, code
        if self._stopped_at is None:
            # The host that is gone ends its own workers now; the others must not lag far behind.
            self._stop(signal.SIGTERM, min(self._grace_s, ORPHAN_GRACE_S))

    def _outcome(self, seconds: float, restarts: int) -> Outcome:
        failure = None if self._interrupted_by else self._failure()
        code = 0
        if self._interrupted_by:
            code = 128 + self._interrupted_by
        elif failure is not None:
            code = shell_code(failure.code) or 1
        return Outcome(
            code=code,
            codes={rank: record.code for rank, record in self._records.items()},
            seconds=round(seconds, 3),
            restarts=restarts,
            failure=failure,
            interrupted_by=signal.Signals(self._interrupted_by).name if self._interrupted_by else None,
            run_dir=str(self._run_dir) if self._run_dir else None,
        )

    def _failure(self) -> Failure | None:
        """Return why the run has failed; None only if all of its ranks have ended with 0.

        A rank that failed by itself is to blame before a host that was lost, and both before ranks that ended because
        of it. A starter that ends with 0 tells that all of its ranks have.
        """
        if (rank := first_to_fail(self._records, self._stopped_at)) is not None:
            return self._failed_rank(rank)
        if self._lost:
            host, (why, code) = next(iter(self._lost.items()))
            ranks = [worker.rank for plan in self._plan.hosts if plan.name == host for worker in plan.workers]
            named = f" (ranks {', '.join(map(str, ranks))})" if ranks else ""
            return Failure(rank=None, host=f"host {host}{named}", code=code, reason=why)
        if self._starter.failed:
            assert self._starter.code is not None
            return Failure(
                rank=None,
                host=self._plan.engine,
                code=self._starter.code,
                reason=f"could not start the workers: {describe_code(self._starter.code)}",
                traceback=self._starter.tail.strip() or None,
            )
        if (rank := first_to_fail(self._records, None)) is not None:
            return self._failed_rank(rank)
        if self._starter.code is None and (rank := first_untold(self._records)) is not None:
            why = f"nobody has told how rank {rank} ended; is the same version of Weft on every host?"
            return Failure(rank=rank, host=self._plan.host_of(rank), code=1, reason=why)
        return None

    def _failed_rank(self, rank: int) -> Failure:
        record = self._records[rank]
        assert record.code is not None
        traceback = last_traceback(record.tail)
        return Failure(
            rank=rank,
            host=self._plan.host_of(rank),
            code=record.code,
            reason=record.verdict
            or memory_verdict(record.tail)
            or (exception_line(traceback) if traceback else describe_code(record.code)),
            traceback=traceback,
            log=log_path(self._run_dir, rank),
        )


@contextlib.contextmanager
def signals_to(handle: Callable[[int], None]) -> Iterator[None]:
    """Hand Ctrl-C and its kin to the run; outside the main thread they stay as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, lambda number, _: handle(number)) for number in _STOPPED}
    # A suspended launcher would look dead to its agents.
    before[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
