"""The program that mpirun and srun start for a worker: it makes the worker one of a Weft run, and tells how it ended.

    mpirun -n 4 -x WEFT_ORDERS python -m weft.launch.engines.adopt -- python train.py

It reads its rank from the variables of Open MPI, MPICH or Slurm, gives the worker the environment and the cores
that the plan has for this rank, passes signals on, and leaves nothing behind when the worker, or the daemon that
started us, ends. Only the standard library is imported.

There are two of us. The front is what mpirun knows, and ends with SIGKILL moments after SIGTERM; the guardian behind
it is the worker's parent, and lives long enough to end the worker and all that the worker started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence

from weft.errors import UsageError, WeftError
from weft.launch.agent import processes
from weft.launch.agent.memory import MemoryWatch, describe_excess
from weft.launch.engines.marks import Ended, end_mark
from weft.launch.engines.orders import VARIABLE, Orders

_ORPHAN_GRACE_S = 1.0
_AGAIN_S = 0.1  # a process may be born while we look for those to kill
_ORPHANED = signal.SIGRTMIN  # sent by the kernel when our parent ends
# How we are asked to end, and how the worker then is. Open MPI's mpirun ends everything by force when it gets SIGTERM
# itself, and so does srun, but they pass the user's signals on and wait.
_ASKS: dict[int, int] = {
    signal.SIGUSR1: signal.SIGINT,
    signal.SIGUSR2: signal.SIGTERM,
    signal.SIGINT: signal.SIGINT,
    signal.SIGTERM: signal.SIGTERM,
    signal.SIGHUP: signal.SIGHUP,
}
_WATCHED = {signal.SIGCHLD, _ORPHANED, *_ASKS}
# Left by a launcher around us; the rank is the one that mpirun or srun gave.
_FOREIGN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")


def rank_of(environ: Mapping[str, str], size: int) -> int:
    """Our rank, in a world that must have the planned size."""
    from weft.context import world_from_env

    world = world_from_env({name: value for name, value in environ.items() if name not in _FOREIGN})
    if world.launcher == "none":
        raise UsageError(
            "weft.launch.engines.adopt must be started by mpirun or srun, got neither's variables; use `weft run`"
        )
    if world.size != size:
        raise UsageError(
            f"the starter must start all {size} workers of the plan, got {world.size}; check --mpiarg"
        )
    return world.rank


def worker_environment(environ: Mapping[str, str], orders: Orders, rank: int) -> dict[str, str]:
    """The worker's variables: those we were given, then the run's, then its own."""
    inherited = {name: value for name, value in environ.items() if name not in (*_FOREIGN, VARIABLE)}
    return {**inherited, **orders.env, **orders.workers[rank].env}


class Guardian:
    """Watches over one worker until nothing of it is left."""

    def __init__(
        self, worker: int, front: int, *, rank: int, memory_bytes: int, grace_s: float, reached: bool
    ) -> None:
        self._worker, self._rank = worker, rank
        self._memory = MemoryWatch(memory_bytes)
        self._front = front
        self._grace_s = grace_s
        self._reached = reached
        self._kill_at: float | None = None
        self._passed_on: set[int] = set()
        self._orphaned = False

    def watch(self) -> Ended:
        """Return when the worker has ended and all it started is gone."""
        while True:
            for pid, code in processes.reap():
                if pid == self._worker:
                    processes.kill_descendants(os.getpid())
                    return Ended(code, asked=self._kill_at is not None)
            if not self._orphaned and os.getppid() != self._front:
                self._orphaned = True
                self._end(signal.SIGTERM, _ORPHAN_GRACE_S)
            self._watch_memory()
            self._on_signal(self._next())

    def _watch_memory(self) -> None:
        """End a worker that holds more memory than it may; the launcher knows the sentence."""
        for used_bytes in self._memory.look([self._worker], time.monotonic()).values():
            excess = describe_excess(f"rank {self._rank}", used_bytes, self._memory.limit_bytes)
            os.write(2, f"weft: {excess}\n".encode())
            processes.signal_group(self._worker, signal.SIGKILL)

    def _next(self) -> int | None:
        """Wait for a signal; None if there is something to do by the clock."""
        due = [] if self._kill_at is None else [self._kill_at]
        due += [self._memory.due_at] if self._memory.limit_bytes else []
        if not due:
            return signal.sigwaitinfo(_WATCHED).si_signo
        info = signal.sigtimedwait(_WATCHED, max(0.0, min(due) - time.monotonic()))
        return info.si_signo if info else None

    def _on_signal(self, number: int | None) -> None:
        if number is None:
            if self._kill_at is not None and time.monotonic() >= self._kill_at:
                self._force()
        elif ask := _ASKS.get(number):
            self._end(ask, self._grace_s, heard=self._reached and ask == number)

    def _force(self) -> None:
        for pid in processes.descendants(os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._kill_at = time.monotonic() + _AGAIN_S

    def _end(self, number: int, grace_s: float, *, heard: bool = False) -> None:
        """Ask the worker, once for each signal however often we hear of it, and no more than `grace_s` from now."""
        if number not in self._passed_on and not heard:
            processes.signal_group(self._worker, number)
        self._passed_on.add(number)
        due = time.monotonic() + grace_s
        self._kill_at = due if self._kill_at is None else min(due, self._kill_at)


def guard(argv: Sequence[str], environ: Mapping[str, str], front: int) -> Ended:
    """Run one worker to its end."""
    if VARIABLE not in environ:
        raise UsageError(f"{VARIABLE} must be set, got none; start the run with `weft run`")
    orders = Orders.unseal(environ[VARIABLE])
    rank = rank_of(environ, len(orders.workers))
    mine = orders.workers[rank]
    if orders.reached:
        # The worker inherits this. We still get the signal: a blocked one is kept until it is fetched.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    process = processes.spawn(
        argv,
        env=worker_environment(environ, orders, rank),
        cwd=orders.cwd,
        cpus=mine.cpus,
        numa=mine.numa,
        piped=False,
    )
    guardian = Guardian(
        process.pid,
        front,
        rank=rank,
        memory_bytes=orders.memory_bytes,
        grace_s=orders.grace_s,
        reached=orders.reached,
    )
    ended = guardian.watch()
    process.returncode = ended.code  # it was reaped by hand
    return ended


def _guard_and_tell(argv: Sequence[str], front: int) -> int:
    os.setsid()  # whoever ends the front with its whole group must not reach us
    processes.become_subreaper()
    processes.follow_parent(_ORPHANED)
    try:
        ended = guard(argv, os.environ, front)
    except (WeftError, OSError) as error:
        print(f"weft: {error}", file=sys.stderr)
        ended = Ended(127 if isinstance(error, FileNotFoundError) else 1)
    return _tell(ended)


def _tell(ended: Ended) -> int:
    os.write(2, end_mark(ended).encode())  # one write, so that nothing comes between its parts
    if ended.asked:
        return 0  # or the starter would end the others before their time
    return ended.code if ended.code >= 0 else 128 - ended.code


def _stand_in(guardian: int) -> int:
    """Be what mpirun or srun sees of the worker: pass signals on, end as it ends."""
    parent = os.getppid()
    processes.follow_parent(_ORPHANED)
    while True:
        for pid, code in processes.reap():
            if pid == guardian:
                return code if code >= 0 else _tell(Ended(code))
        number = signal.sigwaitinfo(_WATCHED).si_signo
        if number in _ASKS:
            os.kill(guardian, number)
        elif number == _ORPHANED and os.getppid() != parent:  # not when only a thread of it ended
            os.kill(guardian, signal.SIGTERM)


def main() -> None:
    argv = sys.argv[2:] if sys.argv[1:2] == ["--"] else sys.argv[1:]
    # Blocked signals wait until they are fetched; a handler could run just before we go to sleep.
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    front = os.getpid()
    guardian = os.fork()
    code = _stand_in(guardian) if guardian else _guard_and_tell(argv, front)
    # At once: an interpreter that winds down has nothing left to say.
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
