"""What follows a run, against made-up clusters: late watches, queues, containers beside ours, Jobs that give up."""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.kubernetes import ending, follow, run_job
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.follow import RunFollower
from weft.launch.engines.kubernetes.objects.names import PodNames

Data = dict[str, Any]


class LateWatch:
    """A cluster whose Job has failed before the watch of its pods has told anything."""

    def __init__(self) -> None:
        self.logs_read = 0
        self.job = {
            "metadata": {"name": "digits", "uid": "7", "labels": {}},
            "spec": {"parallelism": 1},
            "status": {
                "conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]
            },
        }
        ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
        self.pod: Data = {
            "metadata": {
                "name": "digits-0-x7k2p",
                "uid": "8",
                "creationTimestamp": "2026-11-18T00:00:00Z",
                "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
                "ownerReferences": [{"uid": "7"}],
            },
            "status": {"phase": "Failed", "containerStatuses": [{"name": "worker", "state": ended}]},
        }

    def watch_pods(self, selector: str, over: threading.Event) -> Iterator[dict[str, Data]]:
        over.wait()
        yield from ()

    def read(self, wanted: Data) -> Data | None:
        return self.job

    def pods(self, selector: str) -> list[Data]:
        return [self.pod]

    def events(self, **about: str) -> list[Data]:
        return []

    def log(self, pod: str, container: str, *, since: str | None, follow: bool) -> Iterator[bytes]:
        self.logs_read += 1
        if since is None:
            yield b"2026-11-18T00:00:01Z [0] the last line\n"


@dataclass
class Followed:
    """A run that was followed to its end, and what was said about it."""

    outcome: Outcome
    said: str


def follow_to_end(cluster: LateWatch, folder: Path, **fields: Any) -> Followed:
    """Follow the run of a cluster."""
    out = io.BytesIO()
    console = Console(1, logs=folder, out=out, err=out)
    names = PodNames("digits", "job")
    follower = RunFollower(cast("ClusterApi", cluster), names, "worker", console, folder, **fields)
    outcome = follower.follow()
    console.close()
    return Followed(outcome, out.getvalue().decode())


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all that is done every second or so be done at once."""
    monkeypatch.setattr(follow, "LOOK_S", 0.02)
    monkeypatch.setattr(follow, "LEAVES_S", 0.1)
    monkeypatch.setattr(ending, "GONE_S", 0.1)
    monkeypatch.setattr(run_job, "NO_PODS_S", 0.0)
    monkeypatch.setattr(run_job, "EVENTS_EVERY_S", 0.0)


def test_a_run_that_fails_before_its_pods_are_heard_of_has_its_own_exit_code(tmp_path: Path) -> None:
    done = follow_to_end(LateWatch(), tmp_path)
    assert done.outcome.code == 3
    assert done.outcome.failure is not None
    assert (tmp_path / "rank-0.log").read_text() == "the last line\n"


class OtherPodFailed(LateWatch):
    """A cluster whose Job failed by its second pod, and told the first one to end."""

    def pods(self, selector: str) -> list[Data]:
        return list(self.by_name().values())

    def watch_pods(self, selector: str, over: threading.Event) -> Iterator[dict[str, Data]]:
        yield self.by_name()
        over.wait()

    def by_name(self) -> dict[str, Data]:
        return {
            f"digits-{index}": {
                "metadata": self.pod["metadata"]
                | {
                    "name": f"digits-{index}",
                    "uid": f"8{index}",
                    "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
                },
                "status": {
                    "phase": "Failed",
                    "containerStatuses": [
                        {"name": "worker", "state": {"terminated": {"exitCode": code, "reason": "Error"}}}
                    ],
                },
            }
            for index, code in ((0, 143), (1, 137))
        }


class PodTakenAway(OtherPodFailed):
    """A cluster that takes the second pod away, and tells so in states that all come at once."""

    def watch_pods(self, selector: str, over: threading.Event) -> Iterator[dict[str, Data]]:
        target = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        first, second = self.by_name().values()
        second["status"] = {"phase": "Running", "conditions": [target]}
        yield {"digits-0": first, "digits-1": second}
        yield {"digits-0": first}
        over.wait()

    def pods(self, selector: str) -> list[Data]:
        return [self.by_name()["digits-0"]]


def test_a_pod_that_is_gone_before_it_is_looked_at_was_taken_away(tmp_path: Path) -> None:
    done = follow_to_end(PodTakenAway(), tmp_path)
    assert "weft: digits-1 is taken away: EvictionByEvictionAPI" in done.said


class OtherPodFailedUnheard(OtherPodFailed):
    """The same, of which the watch has told nothing yet."""

    def watch_pods(self, selector: str, over: threading.Event) -> Iterator[dict[str, Data]]:
        over.wait()
        yield from ()


@pytest.mark.parametrize("kind", [OtherPodFailed, OtherPodFailedUnheard])
def test_a_first_pod_that_the_job_told_to_end_is_not_the_failure(
    kind: type[OtherPodFailed], tmp_path: Path
) -> None:
    outcome = follow_to_end(kind(), tmp_path).outcome
    assert outcome.code == 1
    assert outcome.failure is not None
    assert outcome.failure.host == "digits-1"
    assert outcome.failure.reason == "exit code 137"


WRAPPER: Data = {
    "apiVersion": "workload.codeflare.dev/v1beta2",
    "kind": "AppWrapper",
    "metadata": {"name": "digits"},
}


class Queued(LateWatch):
    """A cluster whose queue lets a wrapper in after a while, and then once more: its Job is made anew."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.suspended = {
            **WRAPPER,
            "metadata": {
                "name": "digits",
                "uid": "1",
                "creationTimestamp": "2026-11-18T00:00:00Z",
                "labels": {"kueue.x-k8s.io/queue-name": "research"},
            },
            "spec": {"suspend": True},
        }

    def read(self, wanted: Data) -> Data | None:
        if wanted["kind"] == "AppWrapper":
            return self.suspended
        self.looks += 1
        if self.looks == 3:  # let in, and taken out again
            return {**self.job, "metadata": {"name": "digits", "uid": "6"}, "status": {}}
        return self.job if self.looks > 6 else None

    def events(self, **about: str) -> list[Data]:
        if about != {"kind": "Workload"}:
            return []
        told = {"type": "Warning", "reason": "Pending"}
        names = (("appwrapper-digits-1a2b3", "18", "no quota"), ("appwrapper-digits-0", "17", "an old run's"))
        return [
            {
                **told,
                "involvedObject": {"name": name},
                "lastTimestamp": f"2026-11-{day}T00:00:09Z",
                "message": why,
            }
            for name, day, why in names
        ]


def test_a_run_waits_for_whatever_makes_its_job(tmp_path: Path) -> None:
    done = follow_to_end(Queued(), tmp_path, maker=WRAPPER)
    assert done.outcome.code == 3
    assert done.said.count("weft: the run waits in the queue research") == 1
    assert "weft: the queue research says: Pending: no quota" in done.said
    assert "an old run's" not in done.said


@pytest.mark.parametrize(
    ("wrapper", "why"),
    [(None, "it was deleted"), ({**WRAPPER, "status": {"phase": "Failed"}}, "Failed")],
    ids=["deleted", "failed"],
)
def test_a_run_whose_job_is_never_made_ends_with_what_was_to_make_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrapper: Data | None, why: str
) -> None:
    cluster = LateWatch()
    found = None if wrapper is None else {**wrapper, "metadata": {"name": "digits", "uid": "1"}}
    monkeypatch.setattr(cluster, "read", lambda item: found if item["kind"] == "AppWrapper" else None)
    monkeypatch.setattr(cluster, "pods", lambda _: [])
    outcome = follow_to_end(cluster, tmp_path, maker=WRAPPER).outcome
    assert outcome.code == 1
    assert outcome.failure is not None
    assert why in outcome.failure.reason


class GoesOn(LateWatch):
    """A cluster whose Job takes the run for going on, though its first pod has ended."""

    def __init__(self, **status: Any) -> None:
        super().__init__()
        self.job["status"] = status

    def watch_pods(self, selector: str, over: threading.Event) -> Iterator[dict[str, Data]]:
        yield {"digits-0-x7k2p": self.pod}
        over.wait()


def test_a_container_beside_ours_does_not_keep_a_failed_run_from_its_end(tmp_path: Path) -> None:
    """The proxy of a mesh stays, so the pod never fails, nor does the Job."""
    cluster = GoesOn()
    cluster.pod["status"]["phase"] = "Running"
    proxy = {"name": "istio-proxy", "state": {"running": {}}}
    cluster.pod["status"]["containerStatuses"].insert(0, proxy)
    done = follow_to_end(cluster, tmp_path)
    assert done.outcome.code == 3
    assert "weft: digits-0 has ended, but not istio-proxy beside it" in done.said


def test_an_elastic_job_that_gives_its_first_pod_up_is_over(tmp_path: Path) -> None:
    """Where failures count for each index, such a Job goes on with the others for ever."""
    done = follow_to_end(GoesOn(failedIndexes="0,3-5"), tmp_path, elastic=True)
    assert done.outcome.code == 3


class LostFirstNode(LateWatch):
    """A cluster whose first pod was lost with its node and never ends; another one has ended the run."""

    def __init__(self) -> None:
        super().__init__()
        self.job["status"] = {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}
        self.pod["status"]["containerStatuses"][0]["state"] = {"terminated": {"exitCode": 0}}
        self.pod["status"]["phase"] = "Succeeded"
        lost = {"name": "digits-0-lost1", "uid": "9", "deletionTimestamp": "2026-11-18T00:01:00Z"}
        self.lost: Data = {
            "metadata": {**self.pod["metadata"], **lost},
            "spec": {"terminationGracePeriodSeconds": 1_000_000},
            "status": {
                "phase": "Running",
                "containerStatuses": [{"name": "worker", "state": {"running": {}}}],
            },
        }

    def pods(self, selector: str) -> list[Data]:
        return [self.lost, self.pod]

    def watch_pods(self, selector: str, over: threading.Event) -> Iterator[dict[str, Data]]:
        yield {pod["metadata"]["name"]: pod for pod in self.pods(selector)}
        over.wait()

    def log(self, pod: str, container: str, *, since: str | None, follow: bool) -> Iterator[bytes]:
        if pod == "digits-0-lost1":  # nobody can reach its node
            raise ClusterError("no route to host", 500)
        yield from super().log(pod, container, since=since, follow=follow)


def test_a_first_pod_on_a_lost_node_keeps_nobody_waiting(tmp_path: Path) -> None:
    done = follow_to_end(LostFirstNode(), tmp_path, elastic=True)
    assert done.outcome.code == 0
    assert (tmp_path / "rank-0.log").read_text() == "the last line\n"


class CutOffFirstNode(LostFirstNode):
    """The same, but for a node that only the other pods do not reach: its pod prints on and on."""

    def log(self, pod: str, container: str, *, since: str | None, follow: bool) -> Iterator[bytes]:
        if pod != "digits-0-lost1":
            yield from super().log(pod, container, since=since, follow=follow)
        for second in itertools.count() if pod == "digits-0-lost1" else ():
            yield b"2026-11-18T00:00:00.%09dZ weft: alone\n" % second
            time.sleep(0.01)


def test_a_first_pod_that_prints_on_alone_does_not_hide_its_replacement(tmp_path: Path) -> None:
    done = follow_to_end(CutOffFirstNode(), tmp_path, elastic=True)
    assert done.outcome.code == 0
    assert (tmp_path / "rank-0.log").read_text() == "the last line\n"
