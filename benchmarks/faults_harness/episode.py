"""One run of the campaign: `weft run --elastic` on this machine, its workers' lines, and the faults done to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from benchmarks.faults_harness.judge import StepLine, parse

from weft.collectives.modes.shared_memory.arena import PREFIX

SCRIPT = Path(__file__).with_name("script.py")
WEFT = str(Path(sys.executable).with_name("weft"))
POLL_S = 0.004
HANG_S = 30.0  # without a commit for this long, a run hangs
START_S = 120.0  # for all workers to step together, on a busy machine
SHARED_MEMORY = Path("/dev/shm")


class HangError(Exception):
    """Nothing was committed for HANG_S."""


class Episode:
    """A run under way."""

    def __init__(self, folder: Path, *, workers: int, epochs: int, step_ms: float) -> None:
        self.folder, self.workers = folder, workers
        self.run_dir = folder / "run"
        self.lines: list[StepLine] = []
        self._last_step = -1
        self._offsets: dict[Path, int] = {}
        self.began = time.time()
        folder.mkdir(parents=True)
        with (folder / "launcher.log").open("wb") as log:
            self.launcher = subprocess.Popen(
                [
                    WEFT, "run", "--elastic", f"1:{workers}", "-n", str(workers), "--run-dir", str(self.run_dir),
                    "--checkpoint", str(folder / "saved"), "--checkpoint-every", "20",
                    str(SCRIPT), str(folder), str(epochs), str(step_ms),
                ],
                cwd=folder,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

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
        """The events that the agent has written."""
        found = []
        for file in (self.run_dir / "elastic").glob("*.events.jsonl"):
            for line in file.read_text().splitlines():
                with suppress(ValueError):
                    found.append(json.loads(line))
        return found

    @property
    def last_step(self) -> int:
        return self._last_step

    def alive(self) -> list[int]:
        """The worker processes that are there, in the order of their start."""
        pids = [int(path.stem.partition("-")[2]) for path in self.folder.glob("steps-*.jsonl")]
        return sorted(pid for pid in pids if _is_alive(pid))

    def members(self) -> list[int]:
        """The workers that committed one of the last two steps."""
        recent = {line.pid for line in self._recent()}
        return [pid for pid in self.alive() if pid in recent]

    def _recent(self) -> list[StepLine]:
        """The lines about the last two steps that were applied."""
        last = self.lines[-12 * self.workers :]
        return [line for line in last if line.checksum is not None and line.step >= self.last_step - 1]

    # -- waiting ----------------------------------------------------------------------------------

    def wait(self, done: Callable[[], bool], seconds: float = HANG_S) -> None:
        """Wait until something is so or the run has ended; raises HangError if no step is committed for so long."""
        moved, step = time.monotonic(), self.last_step
        while not self.ended:
            self.read()
            if done():
                return
            if self.last_step != step:
                moved, step = time.monotonic(), self.last_step
            if time.monotonic() > moved + seconds:
                raise HangError
            time.sleep(POLL_S)

    def wait_for_all(self) -> None:
        """Wait until all workers have committed the same step."""

        def together() -> bool:
            last = {line.pid: line.step for line in self._recent()}
            alive = self.alive()
            return len([pid for pid in alive if pid in last]) >= self.workers

        self.wait(together, START_S)

    def wait_for_commit(self, after: int) -> float:
        """Wait for a commit of a step above `after`; return its time."""
        self.wait(lambda: self.last_step > after)
        later = [line.t for line in self.applied if line.step > after]
        return min(later, default=time.time())

    # -- the end ----------------------------------------------------------------------------------

    def end(self) -> int | None:
        """Wait for the end of the run; return its exit code, None if it hangs."""
        with suppress(HangError):
            self.wait(lambda: False)
        self.read()
        return self.launcher.poll()

    def dump_stacks(self) -> None:
        """Have all workers write down where they are."""
        for pid in self.alive():
            with suppress(OSError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)

    def kill_all(self) -> None:
        """End what is left of the run."""
        for process in self.left():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.launcher.pid, signal.SIGKILL)
        self.launcher.wait()

    def left(self) -> list[psutil.Process]:
        """Processes of this run that are there."""
        mark = str(self.folder)
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if mark in process.environ().get("WEFT_RUN_DIR", "") and process.status() != "zombie":
                    found.append(process)
        return found

    def shared_memory_left(self) -> list[str]:
        """Files in shared memory that workers of this run have made: a name begins with the number of its maker."""
        own = {str(event["pid"]) for event in self.events() if event["event"] == "started"}
        names = [path.name for path in SHARED_MEMORY.glob(f"{PREFIX}*")]
        return [name for name in names if name.removeprefix(PREFIX).partition("-")[0] in own]


def _is_alive(pid: int) -> bool:
    with suppress(psutil.Error):
        return psutil.Process(pid).status() != "zombie"
    return False
