"""An elastic run on this machine, started as a user does, with faults on demand, and what must be true after it."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.forking.server import ForkServer
from testing.shell import WEFT

from weft.elastic.history.ledger import check

WORKERS = Path(__file__).with_name("workers")
TRAIN = str(WORKERS / "train.py")
HOST = "here"
REFERENCES = Path(__file__).parents[2] / "build" / "references"  # a folder for each test run


def environment(**extra: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, "SAME": "1", "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **extra}


Reference = Callable[..., dict[str, Any]]  # from a training's arguments to its result


def undisturbed(forks: ForkServer, *args: str) -> dict[str, Any]:
    """Result of the same training in one process, computed once for all processes of a test run."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if run is None:
        return _train_alone(forks, args)
    folder = REFERENCES / run
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / (hashlib.sha256("\0".join(args).encode()).hexdigest() + ".json")
    with file.open("a+") as kept:
        fcntl.flock(kept, fcntl.LOCK_EX)  # another process may be computing it
        kept.seek(0)
        known = kept.read()
        result: dict[str, Any] = json.loads(known) if known else _train_alone(forks, args)
        if not known:
            kept.write(json.dumps(result))
    return result


def _train_alone(forks: ForkServer, args: Sequence[str]) -> dict[str, Any]:
    done = subprocess.run(
        [forks.python, TRAIN, "--reproducible", *args],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def held(folder: Path, pause: str = "0.3") -> list[str]:
    """Arguments of a training that pauses in each step until its run is told to `go_on`."""
    return ["--pause", pause, "--until", str(folder / "go")]


@dataclass
class LocalRun:
    """One run of `weft run --elastic` with its own folder."""

    folder: Path
    limits: str
    workers: int
    args: Sequence[str] = ()
    flags: Sequence[str] = ("--detect-within", "2")
    script: str = TRAIN
    forks: ForkServer | None = None  # where launcher, agent and workers are its forks, not new interpreters
    code: int | None = None
    output: str = ""
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def go_on(self) -> None:
        """Have a training that was `held` here take its pauses no longer."""
        (self.folder / "go").touch()

    def start(self) -> LocalRun:
        weft = self.forks.weft if self.forks else WEFT
        self._process = subprocess.Popen(
            [
                weft, "run", "--elastic", self.limits, "-n", str(self.workers), "-H", "localhost", "--env", "SAME",
                "--run-dir", str(self.run_dir), *self.flags, self.script, *self.args,
            ],
            cwd=self.folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )  # fmt: skip
        return self

    def finish(self, timeout: float = 200) -> LocalRun:
        assert self._process is not None
        try:
            self.output, _ = self._process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self.output, _ = self._process.communicate(timeout=120)
            raise AssertionError(f"the run must end, got {self.output}") from None
        self.code = self._process.returncode
        return self

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def kill_politely(self) -> None:
        """Have the run end, and wait for that."""
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=60)

    @property
    def pid(self) -> int:
        """The launcher's."""
        assert self._process is not None
        return self.forks.pid_of(self._process) if self.forks else self._process.pid

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        files = (self.run_dir / "elastic").glob("*.events.jsonl") if self.run_dir.exists() else ()
        events = [
            json.loads(line) for file in files for line in file.read_text().splitlines() if line.endswith("}")
        ]
        return [event for event in events if name in (None, event["event"])]

    def await_event(self, name: str, timeout_s: float = 120, **facts: Any) -> dict[str, Any]:
        """The first event of this name with these facts."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for event in self.events(name):
                if facts.items() <= event.items():
                    return event
            assert self._process is not None
            assert self._process.poll() is None, self.finish().output
            time.sleep(0.02)
        raise AssertionError(f"no {name} {facts} within {timeout_s} s: {self.events()}")

    def pid_of(self, worker: str) -> int:
        return int(self.await_event("started", worker=worker)["pid"])

    @property
    def results(self) -> list[dict[str, Any]]:
        """What each worker that came to the end printed."""
        lines = [line.partition("] ")[2] for line in self.output.splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def fired(self, fault: str) -> bool:
        return f"fault {fault}" in self.output

    def lost(self, kind: str | None = None) -> list[str]:
        """Who was lost, in this way or in any."""
        kinds = (kind,) if kind else ("death", "stuck", "host")
        return [who for event in self.events("detected") if event["kind"] in kinds for who in event["who"]]

    def check(self, reference: dict[str, Any], *, size: int | None = None) -> None:
        """It ended well: all members the same, and the same as if nothing had happened; every sample once."""
        assert self.code == 0, self.output
        assert self.results, self.output
        for key in ("digest", "committed", "lr"):
            assert {result[key] for result in self.results} == {reference[key]}, (key, self.output)
        if size is not None:
            assert len(self.results) == size, self.output
        report = check(self.run_dir)
        assert report.exact, report.problems
