"""Elastic runs in pods: the first pod launches, and pods that come and go are hosts that are wanted and not.

A run outlives its first pod. The other pods keep what a launcher writes down, and tell it to the pod that takes the
place of the first one, which adopts the run where it is (`adopt.py`). Where too few pods are left to decide without
those that are lost, it begins again from what was saved.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import closing
from dataclasses import replace
from typing import BinaryIO

import msgspec

from weft.elastic.config import ElasticConfig
from weft.elastic.launcher.adopt import ALL_LOST, AdoptingLauncher, adopt
from weft.elastic.launcher.control import (
    FOLDER,
    RunControl,
    settings_to_json,
    write_control,
    write_secret,
)
from weft.elastic.launcher.launcher import ElasticLauncher
from weft.elastic.launcher.pods.keeping import RunKeeper, TraceCollector
from weft.elastic.launcher.recruits import HostRecord, HostState
from weft.elastic.launcher.underlying import underlying_launch
from weft.elastic.membership.council import is_quorum
from weft.elastic.membership.reports import AgentStatus
from weft.errors import ConnectError
from weft.launch.config import LaunchConfig
from weft.launch.control.outcome import Outcome
from weft.launch.control.rundir import PRIVATE
from weft.launch.engines.pods.engine import RunHandedOver, in_pods, with_pods
from weft.launch.engines.pods.members import KeptRun, members
from weft.launch.engines.pods.mirror import ADOPTED, FilePiece, mark_of
from weft.topology.hostlist import HostEntry

OTHERS_TOLD_S = 1.0  # for the other pods to tell that they have to go as well
NO_QUORUM_S = 15.0  # after which a run whose pods cannot decide without the lost ones begins anew


def run_in_pods(config: LaunchConfig, elastic: ElasticConfig, *, out: BinaryIO) -> Outcome:
    """Take this pod's part in an elastic run: that of the launcher, or that of another pod."""

    def lead(config: LaunchConfig) -> Outcome:
        there = members()
        per_pod = workers_per_pod(config, elastic, there.place.count)
        config = replace(config, workers=None, per_host=per_pod)
        config = with_pods(config, -(-elastic.least // per_pod), elastic.start_within_s)
        in_these = replace(elastic, hostfile=there.hostfile)
        with closing(RunKeeper(config.run_dir, there)):
            found = there.find_run() if config.run_dir is not None else None
            if found is not None:
                outcome = _go_on(found, config, in_these, out)
                if outcome is not None:
                    return outcome
                config = replace(config, hosts=tuple(map(HostEntry, there.names)))
            there.begin_anew()
            return _begin(config, in_these, out)

    return in_pods(config, lead, elastic=True)


def _begin(config: LaunchConfig, elastic: ElasticConfig, out: BinaryIO) -> Outcome:
    config = underlying_launch(config, elastic)
    with closing(PodsLauncher(config, elastic, out)) as launcher:
        return launcher.run()


def _go_on(found: KeptRun, config: LaunchConfig, elastic: ElasticConfig, out: BinaryIO) -> Outcome | None:
    """Go on with the run of an earlier first pod; None if it cannot go on, and nothing of it is left here."""
    assert config.run_dir is not None
    run_dir = config.run_dir
    control = msgspec.json.decode(found.control, type=RunControl)
    control = msgspec.structs.replace(
        control,
        hosts=tuple(map(HostEntry, dict.fromkeys((members().place.name, *members().names)))),
        elastic=settings_to_json(elastic),
    )
    (run_dir / FOLDER).mkdir(PRIVATE, parents=True, exist_ok=True)
    write_control(run_dir, control)
    write_secret(run_dir, found.secret)
    _tell_of_adoption(control)
    with closing(TraceCollector(run_dir, config, members())):
        try:
            outcome = adopt(run_dir, out=out, kind=PodsAdoptingLauncher)
        except (ConnectError, RunStuckError):
            outcome = None
    if outcome is not None and (outcome.failure is None or outcome.failure.reason != ALL_LOST):
        return outcome
    shutil.rmtree(run_dir)
    return None


def _tell_of_adoption(control: RunControl) -> None:
    """Tell whoever follows the log of this pod which ranks print again what the log of the lost pod had."""
    own = members().place.name
    ranks = [rank for name, host in control.known.items() if name != own for rank in host.ranks]
    data = msgspec.json.encode({"ranks": ranks})
    if members().place.mirrors:
        os.write(1, mark_of(FilePiece(ADOPTED, 0, len(data), data)))


class RunStuckError(Exception):
    """The pods that are left cannot decide without those that are lost."""


class PodsLauncher(ElasticLauncher):
    """The launcher in the first pod, which hands the run over when this pod has to go and others stay."""

    _told_to_go_at: float | None = None
    _hands_over = False

    def _interrupt(self, number: int) -> None:
        first = self._told_to_go_at is None and self._interrupted is None
        if number == signal.SIGTERM and first and self._screen.is_open:
            self._told_to_go_at = time.monotonic()
            return
        super()._interrupt(number)

    def _look(self, now: float) -> None:
        if self._told_to_go_at is not None and not self._hands_over:
            self._consider_going(now)
        super()._look(now)
        if self._hands_over and self._has_left():
            raise RunHandedOver

    def _consider_going(self, now: float) -> None:
        """Hand the run over to the pods that stay; where all were told to go, the run ends."""
        assert self._told_to_go_at is not None
        if now - self._told_to_go_at < OTHERS_TOLD_S:
            return
        if not members().others_stay:
            super()._interrupt(signal.SIGTERM)
            return
        self._hands_over = True
        self._say("the first pod has to go: its workers leave, and the pod in its place goes on")
        members().leave()

    def _has_left(self) -> bool:
        own = self._hosts.get(members().place.name)
        return own is None or own.state in (HostState.GONE, HostState.AWAY)


class PodsAdoptingLauncher(PodsLauncher, AdoptingLauncher):
    """The launcher in a first pod that takes the place of another one."""

    _quorum_at: float | None = None
    _voters_in_order: tuple[str, ...] = ()

    def _settle(self) -> None:
        super()._settle()
        members().write_hosts()  # pods that came meanwhile are wanted, too

    def _on_status(self, host: HostRecord, status: AgentStatus) -> None:
        super()._on_status(host, status)
        if host.view == self._view:
            self._voters_in_order = status.voters

    def _look(self, now: float) -> None:
        super()._look(now)
        agents, voters = {host.agent for host in self._running()}, self._voters_in_order
        if self._quorum_at is None or not voters or is_quorum(voters, agents):
            self._quorum_at = now
        elif now - self._quorum_at > NO_QUORUM_S:
            self._say(
                "too few pods are left to go on without the lost ones; beginning again from what was saved"
            )
            raise RunStuckError


def workers_per_pod(config: LaunchConfig, elastic: ElasticConfig, pods: int) -> int:
    """Return how many workers each pod has: as was said, or so many that all pods have the most."""
    if isinstance(config.per_host, int):
        return config.per_host
    return -(-(config.workers or elastic.most) // pods)
