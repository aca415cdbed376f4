"""The systems that are compared, and how each is started: one class each, listed in SYSTEMS."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from benchmarks.recovery_harness.trial import Trial, below, kill
from testing.cluster.cluster import VirtualCluster, missing

SCRIPTS = Path(__file__).resolve().parent.parent / "recovery_scripts"
WEFT = str(Path(sys.executable).with_name("weft"))
# torch would load our backend by itself; a rival's start must not pay for it.
WITHOUT_OURS = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
# torchrun 2.13 shares one store among all attempts: restarted workers of Gloo may read the addresses of the dead there,
# fail to connect, and use up a restart, or wait for ever (pytorch#135712). This switches the sharing off.
NEW_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
RESTARTS = ("--max-restarts", "10")

ONE_HOST = frozenset({"kill", "stop", "stuck", "samples", "cost"})
HOSTS = frozenset({"host", "join"})


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is asked of every system alike. Hosts may be one fewer than `most`, before or after."""

    hosts: int
    per_host: int
    most: int  # hosts
    step_ms: float = 100.0
    size_mib: float = 4.0
    steps: int = 5000
    batch: int = 8
    checkpoint_every: int = 10

    @property
    def workers(self) -> int:
        return self.hosts * self.per_host

    @property
    def arguments(self) -> list[str]:
        """Of the script."""
        asked = {
            "--step-ms": self.step_ms,
            "--size-mib": self.size_mib,
            "--steps": self.steps,
            "--batch": self.batch,
            "--workers": self.most * self.per_host,
            "--checkpoint-every": self.checkpoint_every,
        }
        return [word for name, value in asked.items() for word in (name, str(value))]

    @property
    def samples(self) -> int:
        return self.steps * self.batch * self.most * self.per_host


class System(Protocol):
    """One that trains through faults. `missing` says why it cannot be tried here, or nothing."""

    name: str
    rows: frozenset[str]  # where it is worth trying
    polite: bool  # it cleans up when asked to end

    def missing(self, row: str) -> str: ...
    def start(self, trial: Trial, job: Job) -> None: ...
    def add_host(self, trial: Trial, job: Job) -> None: ...
    def lose_host(self, trial: Trial) -> float:
        """End the last host with all that runs on it, at once; when."""
        ...


def lose_last_agent(trial: Trial) -> float:
    """On the loopback a host is an agent and its workers: those who had a connection to it learn that it is closed."""
    return kill(trial, below(trial.hosts[-1].pid))


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass
class Torchrun:
    """Restarts all workers from the last checkpoint; several hosts are several agents on the loopback."""

    name: str = "torchrun"
    rows: frozenset[str] = ONE_HOST - {"cost"} | HOSTS
    polite: bool = False
    conf: str = ""  # of the rendezvous
    env: Mapping[str, str] = field(default_factory=dict)
    _port: int = field(default=0, init=False)

    def missing(self, row: str) -> str:
        return ""

    def start(self, trial: Trial, job: Job) -> None:
        self._port = free_port()
        for _ in range(job.hosts):
            self.add_host(trial, job)

    def add_host(self, trial: Trial, job: Job) -> None:
        number = len(trial.hosts)
        argv = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(job.per_host),
            *RESTARTS,
        ]
        if job.most == 1:
            argv += ["--standalone"]
        else:
            # The first host keeps the store, and is never the one that is lost: torchrun does not outlive it.
            conf = f"is_host={int(number == 0)}" + (f",{self.conf}" if self.conf else "")
            argv += ["--nnodes", f"{job.most - 1}:{job.most}", "--local-addr", "127.0.0.1"]
            argv += ["--rdzv-backend", "c10d", "--rdzv-id", "recovery", "--rdzv-conf", conf]
            argv += ["--rdzv-endpoint", f"127.0.0.1:{self._port}"]
        argv += [str(SCRIPTS / "ddp.py"), *job.arguments]
        trial.hosts.append(trial.spawn(f"host{number}", argv, {**WITHOUT_OURS, **self.env}))

    def lose_host(self, trial: Trial) -> float:
        return lose_last_agent(trial)


@dataclass
class Torchft:
    """A lighthouse, and one replica group per worker, each under a torchrun that starts it anew."""

    name: str
    python: str
    heartbeat_ms: int = 5000
    join_ms: int = 60000
    reduce_timeout_s: float = 5.0
    rows: frozenset[str] = ONE_HOST | HOSTS
    polite: bool = False
    _port: int = field(default=0, init=False)

    def missing(self, row: str) -> str:
        return _import_error(self.python, "torchft")

    def start(self, trial: Trial, job: Job) -> None:
        self._port = free_port()
        argv = [str(Path(self.python).with_name("torchft_lighthouse"))]
        argv += ["--bind", f"127.0.0.1:{self._port}", "--min_replicas", str(max(1, job.workers - 1))]
        argv += ["--heartbeat_timeout_ms", str(self.heartbeat_ms), "--join_timeout_ms", str(self.join_ms)]
        trial.spawn("lighthouse", argv, WITHOUT_OURS)
        for _ in range(job.workers):
            self.add_host(trial, job)

    def add_host(self, trial: Trial, job: Job) -> None:
        number = len(trial.hosts)
        env = {
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{self._port}",
            "REPLICA": str(number),
            "REDUCE_TIMEOUT_S": str(self.reduce_timeout_s),
            **WITHOUT_OURS,
        }
        argv = [
            self.python,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "1",
            *RESTARTS,
        ]
        argv += [str(SCRIPTS / "with_torchft.py"), *job.arguments]
        trial.hosts.append(trial.spawn(f"host{number}", argv, env))

    def lose_host(self, trial: Trial) -> float:
        return lose_last_agent(trial)


@dataclass
class Weft:
    """Ours. Several hosts are those of the virtual cluster: one that is lost says nothing, its cable is gone."""

    name: str = "weft"
    rows: frozenset[str] = ONE_HOST | HOSTS
    polite: bool = True
    _cluster: VirtualCluster | None = field(default=None, init=False)

    def missing(self, row: str) -> str:
        if not _has_elastic():
            return "not built yet: weft run has no --elastic"
        why = missing() if row in HOSTS else None
        return f"needs the virtual cluster: {why}" if why else ""

    def start(self, trial: Trial, job: Job) -> None:
        script = ["--run-dir", str(trial.folder / "run"), str(SCRIPTS / "with_weft.py"), *job.arguments]
        if job.most == 1:
            few = max(1, job.workers - 1)
            argv = [
                WEFT,
                "run",
                "--elastic",
                f"{few}:{job.workers}",
                "-n",
                str(job.workers),
                "--no-pin",
                *script,
            ]
            trial.hosts.append(trial.spawn("host0", argv))
            return
        self._cluster = cluster = trial.stack.enter_context(VirtualCluster(job.most))
        self._name_hosts(trial, job.hosts)
        argv = [
            WEFT,
            "run",
            "--elastic",
            f"{job.most - 1}:{job.most}",
            "--per-host",
            "1",
            "--no-pin",
            "--skip-checks",
        ]
        argv += ["--discover", f"cat {trial.folder / 'hosts'}"]
        for name, value in trial.environment.items():
            argv += ["--env", f"{name}={value}"]
        env = {"XDG_CACHE_HOME": str(trial.folder / "cache")}
        with (trial.folder / "launcher.log").open("wb") as log:
            started = cluster.popen([*argv, *script], env=env, cwd=trial.folder, stdout=log, stderr=log)
        trial.hosts.append(started)

    def add_host(self, trial: Trial, job: Job) -> None:
        self._name_hosts(trial, job.hosts + 1)

    def lose_host(self, trial: Trial) -> float:
        assert self._cluster is not None
        when = time.time()
        self._cluster.kill(self._cluster.hosts[-1].name)
        return when

    def _name_hosts(self, trial: Trial, count: int) -> None:
        assert self._cluster is not None
        new = trial.folder / "hosts.new"
        new.write_text("".join(f"{host.name}\n" for host in self._cluster.hosts[:count]))
        new.rename(trial.folder / "hosts")


@dataclass
class Plain:
    """DistributedDataParallel and nothing else, for the cost when nothing fails."""

    name: str
    backend: str
    rows: frozenset[str] = frozenset({"cost"})
    polite: bool = True

    def missing(self, row: str) -> str:
        return ""

    def start(self, trial: Trial, job: Job) -> None:
        argv = [WEFT, "run", "-n", str(job.workers), "--no-pin", "--run-dir", str(trial.folder / "run")]
        argv += [str(SCRIPTS / "ddp.py"), *job.arguments, "--checkpoint-every", "0"]
        trial.hosts.append(trial.spawn("host0", argv, {"RECOVERY_BACKEND": self.backend}))

    def add_host(self, trial: Trial, job: Job) -> None:
        raise NotImplementedError("DDP takes nobody in")

    def lose_host(self, trial: Trial) -> float:
        raise NotImplementedError("DDP outlives nobody")


def systems(torchft_python: str) -> list[System]:
    """All of them, ours first."""
    return [
        Weft(),
        Torchrun(),
        Torchrun(name="torchrun, tuned", conf="last_call_timeout=1", env=NEW_STORE),
        Torchft("torchft", torchft_python),
        Torchft("torchft, tuned", torchft_python, heartbeat_ms=500, join_ms=100, reduce_timeout_s=1.0),
        Plain("ddp, gloo", "gloo"),
        Plain("ddp, weft", "weft"),
    ]


def versions(torchft_python: str) -> str:
    """Of torch here, and of torchft there."""
    code = (
        "from importlib.metadata import distributions as d\n"
        "print(*sorted({f'{x.name} {x.version}' for x in d() if x.name.startswith('torchft')}), sep=', ')"
    )
    done = subprocess.run([torchft_python, "-c", code], capture_output=True, text=True, timeout=120)
    return f"torch {version('torch')}, {done.stdout.strip() or 'no torchft'}"


@cache
def _import_error(python: str, module: str) -> str:
    done = subprocess.run(
        [python, "-c", f"import {module}"], capture_output=True, text=True, env=WITHOUT_OURS, timeout=120
    )
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


@cache
def _has_elastic() -> bool:
    done = subprocess.run([WEFT, "run", "--help"], capture_output=True, text=True, timeout=120)
    return "--elastic" in done.stdout
