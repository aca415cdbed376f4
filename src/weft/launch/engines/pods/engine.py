"""The engine of the pods themselves: the first one is the launcher, and starts agents in the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import FrameType
from typing import Literal

from weft.errors import UsageError
from weft.launch.agent.processes import sweep
from weft.launch.agent.sweep import marker
from weft.launch.config import LaunchConfig
from weft.launch.control.outcome import Outcome
from weft.launch.engines.hosts import SWEEP_TIMEOUT_S, Hosts
from weft.launch.engines.hosts_engine import HostsEngine
from weft.launch.engines.pods.door import serve_door
from weft.launch.engines.pods.members import members
from weft.launch.engines.pods.mirror import Mirror
from weft.launch.engines.pods.place import place_from
from weft.topology.hostlist import HostEntry

LAST_CALL_S = (
    30.0  # for the most pods that torchrun's MIN:MAX names, once the fewest are there; as long as torchrun
)
_WORDS: tuple[Literal["gpu", "cpu", "auto"], ...] = ("gpu", "cpu", "auto")


class RunHandedOver(SystemExit):
    """The first pod has to go, and the run goes on without it; its exit code is that of a pod that was told to go."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class PodHosts(Hosts):
    """The pods of a run as its hosts, reached through their doors."""

    def __init__(self, config: LaunchConfig) -> None:
        super().__init__(config)
        self._members = members()

    def start_on(self, name: str, argv: tuple[str, ...]) -> tuple[str, ...]:
        address, port = self._members.address_of(name)
        program = (sys.executable, "-P", "-m", "weft.launch.engines.pods.call")
        return (*program, str(self._members.secret_file), address, str(port), *argv)

    def is_here(self, name: str) -> bool:
        return name in (self._members.place.name, "localhost")

    def explain(self, name: str, code: int | None, complaint: str) -> str:
        why = f": {complaint.splitlines()[-1]}" if complaint else " without a word"
        return f"{name}: the pod must stay, got its end{why}; was it evicted, is its node up? (kubectl get events)"

    def sweep(self, host: str, run_id: str) -> None:
        """End what an agent that died has left in its pod."""
        if self.is_here(host):
            sweep(marker(run_id))
            return
        argv = (self.python, "-P", "-m", "weft.launch.agent.sweep", run_id)
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                self.start_on(host, argv),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=SWEEP_TIMEOUT_S,
                check=False,
            )


def with_pods(config: LaunchConfig, count: int, more_within_s: float = 0.0) -> LaunchConfig:
    """Return a request for the pods of the run, once the given number is there; the rest may take a while longer."""
    there = members()
    with _ends_at_once():
        there.wait(count, _say)
        if more_within_s:
            there.wait(there.place.count, _say, more_within_s)
    return replace(config, hosts=tuple(HostEntry(name) for name in there.names))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _ends_at_once() -> Iterator[None]:
    """Have SIGTERM end this process: as the first one of a pod, it would be ignored."""

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class PodsEngine(HostsEngine):
    """Workers in the pods of which this one is the first."""

    name = "pods"

    def __init__(self, config: LaunchConfig) -> None:
        place = place_from(os.environ)
        config = with_pods(config, place.least or place.count, 0.0 if place.least is None else LAST_CALL_S)
        super().__init__(config, PodHosts(config))


def in_pods(
    config: LaunchConfig, run: Callable[[LaunchConfig], Outcome], *, elastic: bool = False
) -> Outcome:
    """Take this pod's part in a run: that of the launcher, which carries it out by `run`, or that of another pod.

    The launcher prints the files of the run for whoever follows its log, and tells all pods the end.
    """
    place = place_from(os.environ)
    config = with_torchruns_count(config, os.environ)
    if not place.is_leader:
        return serve_door(place, elastic=elastic)
    mirror = Mirror(config.run_dir) if place.mirrors and config.run_dir is not None else None
    code: int | None = 1
    try:
        outcome = run(config)
        code = outcome.code
        return outcome
    except RunHandedOver:
        code = None
        raise
    finally:
        if mirror is not None:
            mirror.close()
        if code is not None:
            members().end(code)


def with_torchruns_count(config: LaunchConfig, environ: Mapping[str, str]) -> LaunchConfig:
    """Return a request with as many workers in each pod as a TrainJob or a PyTorchJob tells, unless it has its own."""
    setting = environ.get("PET_NPROC_PER_NODE", "")
    if not setting or config.workers is not None or config.per_host is not None:
        return config
    if setting.isdecimal() and int(setting) > 0:
        return replace(config, per_host=int(setting))
    for word in _WORDS:
        if setting == word:
            return replace(config, per_host=word)
    raise UsageError(f"PET_NPROC_PER_NODE must be a number, gpu, cpu or auto, got {setting!r}; mend the pod")
