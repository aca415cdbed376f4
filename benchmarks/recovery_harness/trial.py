"""One trial: a folder, the processes of the system that is tried, and the faults done to them.

All that a trial starts ends with it, orphans included: this process becomes the parent of those who lost theirs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from benchmarks.recovery_harness.measure import Commit, Start, in_step, parse

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.004


class TrialError(Exception):
    """The trial says nothing about recovery: the system did not start, or the fault did not fire as meant."""


class Trial:
    """A running system. `hosts` are its agents in order, each with its workers below it, or its one launcher."""

    def __init__(self, folder: Path, polite: bool = False) -> None:
        self.folder = folder
        self.hosts: list[subprocess.Popen[Any]] = []
        self.stack = ExitStack()  # of what else ends with it
        self.commits: list[Commit] = []
        self.starts: list[Start] = []
        self.last: dict[str, Commit] = {}  # of each worker
        self._polite = polite  # ask the hosts to end before they are killed
        self._read: dict[Path, int] = {}
        folder.mkdir(parents=True)
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        if self._polite:
            for host in self.hosts:
                host.terminate()
            with suppress(TrialError):
                self.wait(lambda: all(host.poll() is not None for host in self.hosts), 10, "an end")
        self.stack.close()
        end_descendants()

    @property
    def environment(self) -> dict[str, str]:
        """What every worker needs."""
        return {"RECOVERY_FOLDER": str(self.folder), "OMP_NUM_THREADS": "1"}

    def spawn(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process of the system; what it says goes into `name`.log."""
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                argv,
                cwd=self.folder,
                env=os.environ | self.environment | dict(env or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def read(self) -> list[Commit]:
        """Take in what was written since; all commits so far."""
        for path in self.folder.glob("commits-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                new, whole, _ = file.read().rpartition(b"\n")
            self._read[path] = self._read.get(path, 0) + len(new) + len(whole)
            for line in new.decode().splitlines():
                entry = parse(line)
                if isinstance(entry, Commit):
                    self.commits.append(entry)
                    self.last[entry.worker] = entry
                else:
                    self.starts.append(entry)
        return self.commits

    def wait(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise TrialError(f"no {what} within {seconds:g} s; {self.said()}")
            time.sleep(POLL_S)

    def wait_in_step(self, workers: int, step: int, seconds: float) -> list[Commit]:
        """Wait until all workers have just committed one step, this one or later; these commits."""

        def together() -> bool:
            self.read()
            if in_step(self.last.values(), workers) and min(self.steps) >= step:
                return True
            if self.ended:
                raise TrialError(f"ended before step {step}; {self.said()}")
            return False

        self.wait(together, seconds, f"step {step} by {workers} workers")
        return list(self.last.values())

    @property
    def steps(self) -> list[int]:
        """How far each worker is."""
        return [commit.step for commit in self.last.values()] or [0]

    @property
    def ended(self) -> bool:
        return all(host.poll() is not None for host in self.hosts)

    def said(self) -> str:
        """The last words of each host."""
        last = []
        for path in sorted(self.folder.glob("*.log")):
            lines = path.read_text(errors="replace").strip().splitlines()
            last.append(f"{path.stem}: {lines[-1] if lines else 'nothing'}")
        return "; ".join(last)


def below(pid: int) -> list[int]:
    """A process and all that it started."""
    with suppress(psutil.NoSuchProcess):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return [pid]


def end_descendants() -> None:
    """Kill whatever this process started, and what that started, until nothing is left."""
    for _ in range(100):
        left = psutil.Process().children(recursive=True)
        if not left:
            return
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)
        with suppress(ChildProcessError):  # those that became ours wait to be reaped
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    raise RuntimeError(f"could not end {left}")


def kill(trial: Trial, pids: Sequence[int]) -> float:
    """SIGKILL them all; when."""
    return _signal(trial, pids, signal.SIGKILL, dead)


def stop(trial: Trial, pids: Sequence[int]) -> float:
    """SIGSTOP them all; when."""
    return _signal(trial, pids, signal.SIGSTOP, lambda pid: _state(pid) == psutil.STATUS_STOPPED)


def stick(trial: Trial, pids: Sequence[int]) -> float:
    """Let main threads loop for ever from their next step on; when the last began to."""
    for pid in pids:
        (trial.folder / f"stick-{pid}").touch()
    proofs = [trial.folder / f"stuck-{pid}" for pid in pids]
    trial.wait(lambda: all(proof.exists() for proof in proofs), 10, "worker that got stuck")
    return max(float(proof.read_text()) for proof in proofs)


def _signal(trial: Trial, pids: Sequence[int], number: signal.Signals, done: Callable[[int], bool]) -> float:
    when = time.time()
    for pid in pids:
        with suppress(ProcessLookupError):  # it may go with its parent
            os.kill(pid, number)
    trial.wait(lambda: all(done(pid) for pid in pids), 5, f"effect of {number.name}")
    return when


def dead(pid: int) -> bool:
    return _state(pid) in (None, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def _state(pid: int) -> str | None:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return None
