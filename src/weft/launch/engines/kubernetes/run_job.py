"""The Job of a run as a cluster has it: why it has no pods yet, why it is over.

We make a Job ourselves, or a JobSet, a TrainJob or an AppWrapper does: later, where a queue keeps it back, and an
AppWrapper once more after its queue has taken it out and let it in again. Then what makes the Job tells what happens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from weft.launch.engines.kubernetes.api import ClusterApi
from weft.launch.engines.kubernetes.pod_news import (
    has_given_up,
    is_waiting,
    job_end,
    maker_end,
    queue_of,
    warnings_in,
    workload_events,
)

Data = dict[str, Any]
NO_PODS_S = 3.0  # after which a Job without pods is asked why
EVENTS_EVERY_S = 5.0  # between two looks at events
MOST_ASKED = 4  # pods whose events are asked for


@dataclass
class RunJob:
    """The Job of one run, and what makes it."""

    api: ClusterApi
    name: str
    uid: str | None  # None: that of the Job that is found
    maker: Data | None  # the object that makes the Job, where it was not us
    host_of: Callable[[Data], str]  # a pod's name as a host of the run
    say_once: Callable[[str, str], None]  # about something
    _next_events: float = 0.0

    def read(self) -> Data | None:
        """Return the Job as it is now; None where there is none, or one of another run."""
        job = self.api.read({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": self.name}})
        if job is not None and (self.uid is None or self.maker is not None):
            self.uid = job["metadata"]["uid"]  # a maker may make it anew
        return job if job is not None and job["metadata"]["uid"] == self.uid else None

    def why_over(self, job: Data | None, pods: Mapping[str, Data], seconds: float) -> str | None:
        """Return why the run is over, if it is; say why it has no pods, or too few."""
        suspended = job is not None and job.get("spec", {}).get("suspend")
        if self.maker is not None and (job is None or suspended):
            return self._look_at_maker(self.maker, seconds)
        if job is not None and suspended:
            self._explain_queue(job)
        elif job is not None and pods:
            self._explain_pods(pods, seconds, wanted=int(job["spec"].get("parallelism", 1)))
        elif job is not None:
            self._warn_of(job, seconds, "no pods yet")
        if has_given_up(job):
            return "its first pod has failed as often as it may (retries)"
        return job_end(job)

    def _look_at_maker(self, maker: Data, seconds: float) -> str | None:
        """Return why there will be no Job; None while there may be one."""
        made = self.api.read(maker)
        if made is None:
            return job_end(None)
        if made.get("spec", {}).get("suspend"):
            self._explain_queue(made)
        else:
            self._warn_of(made, seconds, "no pods yet")
        return maker_end(made)

    def _explain_queue(self, item: Data) -> None:
        """Say that an object waits in a queue, and why the queue has not let it in."""
        queue = queue_of(item)
        if queue is None:
            self.say_once("job", "weft: the run is suspended")
            return
        self.say_once("job", f"weft: the run waits in the queue {queue}")
        if self._may_ask():
            events = workload_events(self.api.events(kind="Workload"), item)
            for warning in warnings_in(events)[-1:]:
                self.say_once("queue", f"weft: the queue {queue} says: {warning}")

    def _warn_of(self, item: Data, seconds: float, trouble: str) -> None:
        if seconds > NO_PODS_S and self._may_ask():
            for warning in warnings_in(self.api.events(uid=item["metadata"]["uid"])):
                self.say_once("job", f"weft: {trouble}: {warning}")

    def _explain_pods(self, pods: Mapping[str, Data], seconds: float, *, wanted: int) -> None:
        """Say what events tell of pods that are missing, or wait for a volume: no status of a pod tells these."""
        if seconds < NO_PODS_S or not self._may_ask():
            return
        if len(pods) < wanted and self.uid is not None:
            for warning in warnings_in(self.api.events(uid=self.uid)):
                self.say_once("job", f"weft: {wanted - len(pods)} pods are missing: {warning}")
        for pod in [pod for pod in pods.values() if is_waiting(pod)][:MOST_ASKED]:
            host = self.host_of(pod)
            for warning in warnings_in(self.api.events(uid=pod["metadata"]["uid"]))[-1:]:
                self.say_once(host, f"weft: {host} waits: {warning}")

    def _may_ask(self) -> bool:
        """Return whether it is time to ask for events again."""
        now = time.monotonic()
        if now < self._next_events:
            return False
        self._next_events = now + EVENTS_EVERY_S
        return True
