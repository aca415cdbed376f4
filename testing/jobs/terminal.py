"""A terminal beside a service: `weft up` with a data folder of its own, and commands that find it there."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.shell import WEFT, Shell

START_S = 120.0  # for the service to answer, on busy cores


@dataclass
class ServiceTerminal:
    """A user's terminal: commands run in `shell.folder`, and the service keeps its data in `data`."""

    shell: Shell
    data: Path
    process: subprocess.Popen[str] | None = None
    links: list[str] = field(default_factory=list)

    @property
    def variables(self) -> dict[str, str]:
        config = str(self.shell.folder / "config")
        return {"WEFT_HOME": str(self.data), "XDG_CONFIG_HOME": config, "XDG_DATA_HOME": config}

    def up(self, *options: str) -> str:
        """Start the service, and return its URL."""
        # Not a fork: the service starts programs from threads.
        self.process = self.shell.start("up", "--port", "0", *options, command=WEFT, **self.variables)
        deadline_s = time.monotonic() + START_S
        place = self.data / "service.json"
        while time.monotonic() < deadline_s:
            assert self.process.poll() is None, self.process.communicate()
            if place.exists() and (found := json.loads(place.read_text()))["pid"] == self.process.pid:
                assert self.process.stdout is not None
                told = [self.process.stdout.readline() for _ in range(2)]
                self.links.append(told[1].split()[-1])
                return str(found["url"])
            time.sleep(0.02)
        raise AssertionError("the service did not start in time")

    def kill(self) -> None:
        """End the service without a word, as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def down(self) -> None:
        """End the service as Ctrl-C does."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(timeout=60)

    def weft(self, *args: str, **variables: str) -> str:
        """Type a command that succeeds, and return what it prints."""
        done = self.shell.weft(*args, timeout=120, **{**self.variables, **variables})
        assert done.returncode == 0, f"$ weft {' '.join(args)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def refused(self, *args: str, **variables: str) -> str:
        """Type a command that is misuse, and return what it says."""
        done = self.shell.weft(*args, timeout=120, **{**self.variables, **variables})
        assert done.returncode == 2, f"$ weft {' '.join(args)}\n{done.stdout}\n{done.stderr}"
        return done.stderr

    def data_of(self, *args: str) -> Any:
        """Type a command with --json, and return what it prints."""
        return json.loads(self.weft(*args, "--json"))

    def state(self, job: int) -> str:
        return str(self.data_of("job", "show", str(job))["state"])

    def await_state(self, job: int, *states: str) -> str:
        """Wait until a job is in one of some states."""
        deadline_s = time.monotonic() + START_S
        while (found := self.state(job)) not in states:
            assert time.monotonic() < deadline_s, (
                f"job {job} is {found}: {self.weft('job', 'show', str(job))}"
            )
            time.sleep(0.1)
        return found

    def end(self) -> None:
        """Stop all jobs, which outlive the service by design, and the service."""
        if self.process is None:
            return
        if self.process.poll() is not None:
            self.up()
        active = self.data_of("jobs", "--state", "waiting,active")["jobs"]
        if active:
            self.weft("job", "stop", *(str(job["id"]) for job in active))
            for job in active:
                self.await_state(job["id"], "stopped", "completed", "failed")
        self.down()
