"""An elastic run that a test watches: it waits for what the agents write down, does harm, and looks at what is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from testing.cluster.cluster import HEAD, VirtualCluster
from testing.cluster.waiting import wait_until
from testing.shell import WEFT

from weft.elastic.history import ledger
from weft.elastic.history.lines import LEDGER, read_lines, trace_file
from weft.elastic.history.timeline import Event, MembershipChange, changes, read_events

SCRIPT = Path(__file__).parent / "workers" / "steady.py"
STEPS = 200


class Watched:
    """`weft run --elastic` on the hosts of a cluster, started on its head unless told otherwise."""

    def __init__(self, cluster: VirtualCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.env = {**cluster.environment, "XDG_CACHE_HOME": str(folder / "cache")}
        self.process: subprocess.Popen[str] | None = None

    # -- the run ----------------------------------------------------------------------------------

    def start(
        self,
        *flags: str,
        script: Path = SCRIPT,
        pause: float = 0.1,
        more: tuple[str, ...] = (),
        on: str = HEAD,
        checks: bool = False,
    ) -> None:
        """Start it; it takes its time until `hurry` is called. Without `checks` it does so at once."""
        own = (
            ("--steps", str(STEPS), "--pause", str(pause), "--hurry", str(self.folder / "hurry"), *more)
            if script == SCRIPT
            else more
        )
        skipped = () if checks else ("--skip-checks",)
        # The agent beside a launcher is no fork, and hands its workers sockets, which a fork server does not pass on.
        forks = self.cluster.python if on == HEAD else None
        forked = ("--python", forks) if forks else ()
        command = [WEFT, "run", *flags, *skipped, *forked, str(script), *own]
        self._launched_on = self.cluster.host(on)
        with (self.folder / "err").open("w") as err, (self.folder / "out").open("w") as out:
            self.process = self.cluster.popen(
                command, on, env=self.env, cwd=self.folder, stdout=out, stderr=err
            )

    def kill_launcher(self) -> None:
        """Kill the launcher, and nothing else."""
        assert self.process is not None
        host = self._launched_on.name
        (found,) = [pid for pid, line in self.cluster.processes(host) if "--elastic" in line]
        self.kill(found)
        self.process.wait(30)

    def adopt(self, on: str = HEAD) -> None:
        """Give the run another launcher."""
        with (self.folder / "err").open("a") as err, (self.folder / "out").open("a") as out:
            command = [WEFT, "run", "--adopt", str(self.run_dir)]
            self.process = self.cluster.popen(
                command, on, env=self.env, cwd=self.folder, stdout=out, stderr=err
            )

    def hurry(self) -> None:
        (self.folder / "hurry").touch()

    def ends(self, code: int = 0, timeout_s: float = 60.0) -> str:
        """Wait for its end; returns what it said of itself."""
        assert self.process is not None
        self.hurry()
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end\n{self.told()}") from None
        assert self.process.returncode == code, self.told()
        return self.stderr

    def told(self) -> str:
        """All there is to know when a test fails."""
        events = "\n".join(json.dumps(event.to_json()) for event in self.events()[-60:])
        return f"{(self.folder / 'out').read_text()[-2000:]}\n{self.stderr[-4000:]}\n{events}"

    def close(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                self.process.kill()
            self.process.wait()

    @property
    def stderr(self) -> str:
        return (self.folder / "err").read_text()

    # -- what it leaves ---------------------------------------------------------------------------

    @property
    def run_dir(self) -> Path:
        (found,) = [path for path in (self.folder / "weft-runs").iterdir() if path.is_dir()]
        return found

    def events(self) -> tuple[Event, ...]:
        try:
            return read_events(self.run_dir)
        except Exception:  # not there yet
            return ()

    def changes(self) -> tuple[MembershipChange, ...]:
        return changes(self.events())

    def committed(self, host: str) -> int:
        """Steps that a host's agent knows to be committed."""
        try:
            lines = read_lines(trace_file(self.run_dir, host, LEDGER))
        except Exception:
            return 0
        return 1 + max((line["step"] for _, line in lines if "step" in line), default=-1)

    def sees(
        self, what: str, found: Callable[[Event], object], timeout_s: float = 30.0, after: float = 0.0
    ) -> Event:
        """Wait for an event."""
        matching: list[Event] = []

        def look() -> object:
            assert self.process is not None
            matching[:] = [event for event in self.events() if event.t >= after and found(event)]
            return matching or (self.process.poll() is not None and self._launched_on.machine is not None)

        try:
            wait_until(look, what, timeout_s)
        except TimeoutError as error:
            self.close()
            raise AssertionError(f"{error}\n{self.told()}") from None
        if not matching:
            self.close()
            raise AssertionError(f"it ended before there was {what}\n{self.told()}")
        return matching[0]

    def sees_said(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until the launcher has said something."""
        wait_until(lambda: text in self.stderr, f"{text!r} from the launcher\n{self.told()}", timeout_s)

    def steps(self, host: str, step: int, timeout_s: float = 40.0) -> None:
        """Wait until a host has committed so many steps."""
        try:
            wait_until(lambda: self.committed(host) >= step, f"step {step} on {host}", timeout_s)
        except TimeoutError as error:
            self.close()
            raise AssertionError(f"{error}\n{self.told()}") from None

    def stands(self, *workers: str, after: float = 0.0, timeout_s: float = 40.0) -> Event:
        """Wait until a view of just these workers, named by host and slot, has committed a step."""
        wanted = sorted(workers)

        def same(event: Event) -> bool:
            return (
                event.event == "agreed"
                and sorted(n.partition(".")[0] for n in event.about["members"]) == wanted
            )

        agreed = self.sees(f"a view of {', '.join(wanted)}", same, timeout_s, after)
        step = f"a step in view {agreed.view}"
        since = agreed.view or 0
        return self.sees(step, lambda e: e.event == "stepped" and (e.view or 0) >= since, timeout_s, after)

    # -- processes --------------------------------------------------------------------------------

    def agent(self, host: str) -> int:
        (found,) = [pid for pid, line in self.cluster.processes(host) if "weft.elastic.agent.main" in line]
        return found

    def workers(self, host: str) -> list[int]:
        return [pid for pid, line in self.cluster.processes(host) if str(SCRIPT) in line]

    def kill(self, pid: int, number: int = signal.SIGKILL) -> float:
        """Send a signal; returns the time."""
        now = time.time()
        os.kill(pid, number)
        return now

    # -- after the end ----------------------------------------------------------------------------

    def digests(self) -> dict[str, str]:
        """What the workers that finished ended with, by the file that tells it."""
        lines = {
            log.name: [line for line in log.read_text().splitlines() if '"digest"' in line]
            for log in (self.run_dir / "elastic").glob("*.log")
        }
        return {name: json.loads(said[-1])["digest"] for name, said in lines.items() if said}

    def is_sound(self, finished: int | None = None) -> None:
        """All that finished are equal, every sample was consumed once, and nothing is left on any host."""
        self.show()
        report = ledger.check(self.run_dir)
        assert report.exact, (report.problems, self.told())
        assert sum(epoch.steps for epoch in report.epochs) == STEPS
        digests = self.digests()
        assert len(set(digests.values())) == 1, (digests, self.told())
        assert finished is None or len(digests) == finished, (digests, self.told())
        self.leaves_nothing()

    def show(self) -> None:
        print(subprocess.run([WEFT, "timeline", str(self.run_dir)], capture_output=True, text=True).stdout)

    def leaves_nothing(self) -> None:
        for host in [self.cluster.head, *self.cluster.hosts]:
            if host.machine is not None:
                wait_until(
                    partial(self._is_clean, host.name), f"an empty {host.name}, got {self.left_on(host.name)}"
                )

    def _is_clean(self, host: str) -> bool:
        return not self.left_on(host)

    def left_on(self, host: str) -> list[Any]:
        alive = [line for _, line in self.cluster.processes(host) if line and "ssh" not in line[0]]
        files = self.cluster.run(["ls", "/dev/shm"], on=host).stdout.split()
        return [*alive, *files]
