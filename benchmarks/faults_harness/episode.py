"""One run of the campaign: `weft run --elastic`, its workers' lines, and the faults done to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from benchmarks.faults_harness.judge import StepLine, parse
from benchmarks.faults_harness.script import STEPS_PER_EPOCH
from testing.forking.server import ForkServer

from weft.collectives.modes.shared_memory.files import PREFIX

SCRIPT = Path(__file__).with_name("script.py")
WEFT = str(Path(sys.executable).with_name("weft"))
POLL_S = 0.004
SLOW_S = 6.0  # without a commit for this long, all workers write down where they are
HANG_S = 30.0  # without a commit for this long, a run hangs
END_S = 90.0  # for a run to end after its last step: interpreters take long to end on a busy machine
START_S = 120.0  # for all workers to step together, on a busy machine
SHARED_MEMORY = Path("/dev/shm")
SIGNALS = {
    "kill": signal.SIGKILL,
    "stop": signal.SIGSTOP,
    "term": signal.SIGTERM,
}  # harms by a signal to a worker


class HangError(Exception):
    """Nothing was committed for HANG_S."""


class Episode(ABC):
    """A run under way. A worker is named by its host and its process, as its script does."""

    def __init__(self, folder: Path, *, workers: int, epochs: int, step_ms: float) -> None:
        self.folder, self.workers = folder, workers
        self.run_dir = folder / "run"
        self.lines: list[StepLine] = []
        self._last_step, self._final_step = -1, epochs * STEPS_PER_EPOCH - 1
        self._offsets: dict[Path, int] = {}
        self.slow = False  # it took long to recover at least once
        self._harmed: set[str] = set()  # workers that may be there, and will not stay
        self.killed_at: list[float] = []  # times at which workers were killed, in seconds since 1970
        folder.mkdir(parents=True)
        flags = (
            "--run-dir",
            str(self.run_dir),
            "--checkpoint",
            str(folder / "saved"),
            "--checkpoint-every",
            "20",
        )
        with (folder / "launcher.log").open("wb") as log:
            self.launcher = self._launch(
                ["run", "--elastic", f"1:{workers}", *flags],
                [str(SCRIPT), str(folder), str(epochs), str(step_ms)],
                log,
            )

    @abstractmethod
    def _launch(self, run: Sequence[str], script: Sequence[str], log: Any) -> subprocess.Popen[Any]:
        """Start the launcher."""

    # -- what is seen -----------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        return self.launcher.poll() is not None

    def read(self) -> None:
        """Take in the lines that workers have written since the last call."""
        for path in self.folder.glob("steps-*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                new, whole, _ = file.read().rpartition(b"\n")
            self._offsets[path] = self._offsets.get(path, 0) + len(new) + len(whole)
            lines = [parse(line) for line in new.decode().splitlines()]
            self.lines += lines
            done = (line.step for line in lines if line.checksum is not None)
            self._last_step = max(self._last_step, *done, -1)

    @property
    def applied(self) -> list[StepLine]:
        """The lines about steps that were applied."""
        return [line for line in self.lines if line.checksum is not None]

    def events(self) -> list[dict[str, Any]]:
        """The events that the agents have written."""
        found = []
        for file in (self.run_dir / "elastic").glob("*.events.jsonl"):
            for line in file.read_text().splitlines():
                with suppress(ValueError):
                    found.append(json.loads(line))
        return found

    @property
    def last_step(self) -> int:
        return self._last_step

    def alive(self) -> list[str]:
        """The workers that are there, and whose scripts have begun."""
        return sorted(worker for worker in self._begun() if self.process_of(worker) is not None)

    def _begun(self) -> list[str]:
        return [path.stem.removeprefix("steps-") for path in self.folder.glob("steps-*.jsonl")]

    @abstractmethod
    def process_of(self, worker: str) -> psutil.Process | None:
        """The process of a worker; None if it is gone."""

    def members(self) -> list[str]:
        """The workers that committed one of the last two steps, and are to stay."""
        recent = {line.worker for line in self._recent()}
        return [worker for worker in self.alive() if worker in recent - self._harmed]

    def _recent(self) -> list[StepLine]:
        """The lines about the last two steps that were applied."""
        last = self.lines[-12 * self.workers :]
        return [line for line in last if line.checksum is not None and line.step >= self.last_step - 1]

    # -- harm -------------------------------------------------------------------------------------

    def harm(self, how: str, worker: str) -> None:
        """Do harm to a worker, or to what it depends on."""
        self._harmed.add(worker)
        process = self.process_of(worker)
        if process is not None:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(SIGNALS[how])
                self.killed_at += [time.time()] if how == "kill" else []

    def mend(self) -> None:  # noqa: B027 (nothing to mend is the usual case)
        """Undo what does not mend itself, once the run goes on."""

    # -- waiting ----------------------------------------------------------------------------------

    def wait(self, done: Callable[[], bool], seconds: float = HANG_S) -> None:
        """Wait until something is so or the run has ended; raises HangError if no step is committed for so long."""
        moved, step, told = time.monotonic(), self.last_step, False
        while not self.ended:
            self.read()
            if done():
                return
            if self.last_step != step:
                moved, step, told = time.monotonic(), self.last_step, False
            if time.monotonic() > moved + SLOW_S and 0 <= step < self._final_step and not told:
                self.dump_stacks()  # not while workers end: the signal would end them
                self.slow = told = True
            if time.monotonic() > moved + seconds:
                raise HangError
            time.sleep(POLL_S)

    def wait_for_members(self, count: int) -> None:
        """Wait until so many workers have committed the same step."""
        self.wait(lambda: len(self.members()) >= count, START_S)

    def wait_for_commit(self, after: int) -> float:
        """Wait for a commit of a step above `after`; return its time."""
        self.wait(lambda: self.last_step > after)
        later = [line.t for line in self.applied if line.step > after]
        return min(later, default=time.time())

    # -- the end ----------------------------------------------------------------------------------

    def end(self) -> int | None:
        """Wait for the end of the run; return its exit code, None if it hangs."""
        with suppress(HangError):
            self.wait(lambda: False, END_S if self.last_step >= self._final_step else HANG_S)
        self.read()
        return self.launcher.poll()

    def dump_stacks(self) -> None:
        """Have all workers write down where they are, unless they end, and write down who is there."""
        with (self.folder / "processes.txt").open("a") as file:
            print(f"{time.time():.1f}", *map(_describe, self.left()), sep="\n", file=file)
        for worker in self.alive() if self.last_step < self._final_step else ():
            process = self.process_of(worker)
            if process is not None:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGUSR1)
        time.sleep(0.5)

    def close(self) -> None:
        """End what is left of the run."""
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, signal.SIGKILL)
        self.launcher.wait()

    @abstractmethod
    def left(self) -> list[psutil.Process]:
        """Processes of this run that are there."""

    @abstractmethod
    def shared_memory_left(self) -> list[str]:
        """Files in shared memory that workers of this run have made and are there after its end."""


class LocalEpisode(Episode):
    """A run on this machine; with `forks`, its launcher, agent and workers are forks of a process with torch loaded."""

    def __init__(
        self, folder: Path, *, workers: int, epochs: int, step_ms: float, forks: ForkServer | None
    ) -> None:
        self._forks = forks
        super().__init__(folder, workers=workers, epochs=epochs, step_ms=step_ms)

    def _launch(self, run: Sequence[str], script: Sequence[str], log: Any) -> subprocess.Popen[Any]:
        weft = WEFT if self._forks is None else self._forks.weft
        return subprocess.Popen(
            [weft, *run, "-n", str(self.workers), *script],
            cwd=self.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def process_of(self, worker: str) -> psutil.Process | None:
        return living(int(worker.rpartition("-")[2]))

    def left(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                # The environment of a fork is not to be seen, but its folder is.
                marks = (process.environ().get("WEFT_RUN_DIR", ""), process.cwd())
                ours = any(mark.startswith(str(self.folder)) for mark in marks)
                if ours and process.status() != "zombie" and process.pid != self.launcher.pid:
                    found.append(process)
        return found

    def shared_memory_left(self) -> list[str]:
        # A name begins with the number of its maker.
        own = {str(event["pid"]) for event in self.events() if event["event"] == "started"}
        names = [path.name for path in SHARED_MEMORY.glob(f"{PREFIX}*")]
        return [name for name in names if name.removeprefix(PREFIX).partition("-")[0] in own]


def _describe(process: psutil.Process) -> str:
    """Say what a process and its threads wait for."""
    with suppress(psutil.Error, OSError):
        waits = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/wchan")]
        return f"{process.pid} {process.ppid()} {process.status()} {sorted(waits)} {process.cmdline()[-3:]}"
    return f"{process.pid} is gone"


def living(pid: int) -> psutil.Process | None:
    """The process of this number; None if it is gone."""
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        return process if process.status() != "zombie" else None
    return None
