"""What follows a run hears of its pods by a watch, which may be behind what the Job already tells."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from weft.launch.control.console import Console
from weft.launch.engines.kubernetes import follow
from weft.launch.engines.kubernetes.api import ClusterApi
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

    def read(self, wanted: Data) -> Data:
        return self.job

    def pods(self, selector: str) -> list[Data]:
        return [self.pod]

    def events(self, name: str) -> list[Data]:
        return []

    def log(self, pod: str, container: str, *, since: str | None, follow: bool) -> Iterator[bytes]:
        self.logs_read += 1
        if since is None:
            yield b"2026-11-18T00:00:01Z [0] the last line\n"


def test_a_run_that_fails_before_its_pods_are_heard_of_has_its_own_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK_S", 0.05)
    out, cluster = io.BytesIO(), LateWatch()
    console = Console(1, logs=tmp_path, out=out, err=out)
    follower = RunFollower(
        cast("ClusterApi", cluster), PodNames("digits", "job"), "worker", console, tmp_path
    )
    outcome = follower.follow()
    console.close()
    assert outcome.code == 3
    assert outcome.failure is not None
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


def test_a_first_pod_that_the_job_told_to_end_is_not_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "LOOK_S", 0.05)
    console = Console(1, logs=tmp_path, out=io.BytesIO(), err=io.BytesIO())
    cluster = cast("ClusterApi", OtherPodFailed())
    outcome = RunFollower(cluster, PodNames("digits", "job"), "worker", console, tmp_path).follow()
    console.close()
    assert outcome.code == 1
    assert outcome.failure is not None
    assert outcome.failure.host == "digits-1"
    assert outcome.failure.reason == "exit code 137"
