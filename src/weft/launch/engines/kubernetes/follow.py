"""Follows a run on a cluster from outside: why pods wait, what the workers print, how the run ended.

The log of the first pod is the console of the run (`logs/leader_log.py`); `run_job.py` knows the Job, and
`ending.py` decides from all of it whether the run is over, and how it ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from weft.errors import WeftError
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.ending import RunEvidence, is_over, outcome_of
from weft.launch.engines.kubernetes.lease import JobLease
from weft.launch.engines.kubernetes.logs.leader_log import LeaderLog
from weft.launch.engines.kubernetes.logs.log_reader import ContainerLogReader
from weft.launch.engines.kubernetes.objects.names import PodNames
from weft.launch.engines.kubernetes.pod_news import (
    age_of,
    first_pods,
    has_started,
    index_of,
    is_of,
    job_end,
    runs_beside,
    terminated,
    why_leaving,
    why_pending,
)
from weft.launch.engines.kubernetes.run_job import RunJob

Data = dict[str, Any]
LOOK_S = 1.0  # between two looks at the Job
LEAVES_S = 15.0  # for a first pod that runs on beside its replacement to print the rest
OLDER_LOG_S = 3.0  # without a line of a lost first pod's log, until that of its replacement is read
LOG_TROUBLE_TURNS = 8  # tries to read a log, about ten seconds, after which it is said that it cannot be read


@dataclass
class RunFollower:
    """One run, watched until it is over."""

    api: ClusterApi
    names: PodNames
    container: str
    console: Console
    run_dir: Path | None
    elastic: bool = False
    job_uid: str | None = None  # None: that of the Job that is found
    maker: Data | None = None  # what makes the Job, where we have not made it ourselves
    lease: JobLease | None = None
    _pods: dict[str, Data] = field(default_factory=dict)
    _leaving: dict[str, Data] = field(
        default_factory=dict
    )  # pods that the cluster takes away, by their identities
    _news: SimpleQueue[str] = field(default_factory=SimpleQueue)
    _over: threading.Event = field(default_factory=threading.Event)
    _said: set[tuple[str, str]] = field(default_factory=set)
    _logs: dict[str, threading.Thread] = field(default_factory=dict)  # by the pods' identities
    _seen: dict[str, Data] = field(default_factory=dict)  # how first pods ended, by their identities
    _newest_log: str = ""  # the identity of the first pod whose log counts
    _log_pieces: int = 0  # that were read of the logs of first pods
    _interrupted: int | None = None
    _trouble: WeftError | None = None

    def __post_init__(self) -> None:
        self._log = LeaderLog(self.console, self.run_dir, self.names.host(0))
        self._selector = f"batch.kubernetes.io/job-name={self.names.job}"
        self._job = RunJob(self.api, self.names.job, self.job_uid, self.maker, self._host, self._say_once)

    def interrupt(self, number: int) -> None:
        """Note that the run was ended from here."""
        self._interrupted = self._interrupted or number
        self._news.put("interrupted")

    @property
    def is_interrupted(self) -> bool:
        """Return whether the run was ended from here."""
        return self._interrupted is not None

    def follow(self) -> Outcome:
        """Stay until the run is over; return how it ended."""
        began = time.monotonic()
        threading.Thread(target=self._watch, name="weft-pods", daemon=True).start()
        next_look, ended_at, pieces = time.monotonic() + LOOK_S, None, 0
        try:
            while True:
                self._await_news(next_look)
                if self._trouble is not None:
                    raise self._trouble
                facts = self._facts(self._own_pods())
                if facts.ended is not None and ended_at is None:
                    next_look = 0.0  # the Job tells whether that was all
                looks = time.monotonic() >= next_look
                if looks and not is_over(facts, 0.0):
                    next_look = time.monotonic() + LOOK_S
                    why = self._look_at_job(time.monotonic() - began)
                    if why is not None:  # the watch may be behind the Job
                        facts = replace(self._facts(self._ended_and_listed(facts.pods)), why=why)
                    if facts.ended is None and why is None:
                        ended_at = None
                    elif ended_at is None or pieces != self._log_pieces:  # there may be much left to read
                        ended_at, pieces = time.monotonic(), self._log_pieces
                waited_s = 0.0 if ended_at is None else time.monotonic() - ended_at
                if is_over(facts, waited_s):
                    seconds = time.monotonic() - began
                    return outcome_of(facts, self.names, seconds=seconds, run_dir=self.run_dir)
        finally:
            self._over.set()

    def _facts(self, pods: dict[str, Data]) -> RunEvidence:
        """Look at the pods; return what is known with them."""
        self._look_at_pods(pods)
        ended, logs = self._leader_end(pods), list(self._logs.values())
        return RunEvidence(
            pods=pods,
            ended=ended,
            told=self._log.outcome,
            elastic=self.elastic,
            interrupted=self._interrupted,
            reads_log=bool(logs) and logs[-1].is_alive(),
        )

    def _await_news(self, until: float) -> None:
        try:
            self._news.get(timeout=max(0.01, until - time.monotonic()))
            while True:
                self._news.get_nowait()
        except Empty:
            return

    def _watch(self) -> None:
        try:
            for pods in self.api.watch_pods(self._selector, self._over):
                # Of states that come at once only the last one is looked at, in which such a pod may be gone already.
                self._leaving.update(
                    {pod["metadata"]["uid"]: pod for pod in pods.values() if why_leaving(pod)}
                )
                self._pods = pods
                self._news.put("pods")
        except WeftError as error:
            self._give_up(error)

    def _give_up(self, error: WeftError) -> None:
        self._trouble = error
        self._news.put("trouble")

    # -- pods -------------------------------------------------------------------------------------

    def _own_pods(self) -> dict[str, Data]:
        """Return the pods of this run's Job; those of another one of its name may still be ending."""
        pods = self._pods  # another thread puts newer ones in their place
        if self._job.uid is None and pods:
            self._job.read()
        uid = self._job.uid
        return {} if uid is None else {name: pod for name, pod in pods.items() if is_of(pod, uid)}

    def _ended_and_listed(self, known: Mapping[str, Data]) -> dict[str, Data]:
        """Return the pods of this run's Job as they are now, and those that have ended and are gone."""
        uid, pods = self._job.uid, self.api.pods(self._selector)
        ended = {name: pod for name, pod in known.items() if terminated(pod) is not None}
        return ended | {pod["metadata"]["name"]: pod for pod in pods if uid is not None and is_of(pod, uid)}

    def _look_at_pods(self, pods: dict[str, Data]) -> None:
        for identity, pod in list(self._leaving.items()):
            if self._job.uid is not None and is_of(pod, self._job.uid):
                self._say_once(identity, f"weft: {self._host(pod)} is taken away: {why_leaving(pod)}")
        for name, pod in sorted(pods.items(), key=lambda item: age_of(item[1])):
            host = self._host(pod)
            if why := why_pending(pod):
                self._say_once(host, f"weft: {host} waits: {why}")
            if beside := runs_beside(pod):
                self._say_once(
                    pod["metadata"]["uid"], f"weft: {host} has ended, but not {', '.join(beside)} beside it"
                )
            if index_of(pod) != 0 or not has_started(pod):
                continue
            identity = pod["metadata"]["uid"]
            if identity not in self._logs:
                thread = threading.Thread(target=self._read_log, args=(name, identity), daemon=True)
                self._logs[identity] = thread
                thread.start()

    def _host(self, pod: Data) -> str:
        index = index_of(pod)
        return pod["metadata"]["name"] if index is None else self.names.host(index)

    def _say_once(self, subject: str, text: str) -> None:
        if (subject, text) not in self._said:
            self._said.add((subject, text))
            self.console.say(text)

    def _leader_end(self, pods: dict[str, Data]) -> Data | None:
        """Return how the newest first pod ended, once all of its log has been read; None while there is one."""
        leaders = first_pods(pods.values())
        if any(terminated(pod) is None for pod in leaders):
            return None
        for pod in leaders:
            ended = terminated(pod)
            assert ended is not None
            self._seen[pod["metadata"]["uid"]] = ended
        if not self._seen:
            return None
        identity, ended = list(self._seen.items())[-1]
        thread = self._logs.get(identity)
        if thread is not None and thread.is_alive():
            return None
        return ended

    def _read_log(self, pod: str, identity: str) -> None:
        """Read the log of a first pod to its end, over as many connections as it takes."""
        reader, turn, last = ContainerLogReader(), 0, False
        self._await_older_logs(identity)
        while not self._over.is_set():
            try:
                for lines in reader.lines(
                    self.api.log(pod, self.container, since=reader.since, follow=not last)
                ):
                    turn = 0
                    if self._newest_log != identity:
                        return
                    self._log.take(lines)
                    self._log_pieces += 1
                if last:
                    break
                # The end of the stream may be that of the log, or of the connection: one more request tells.
                last = self._has_ended(pod, identity)
            except ClusterError as error:
                if error.status == 404:  # the pod was deleted
                    break
                if error.status in (401, 403) and reader.since is None:
                    self._say_once(pod, f"weft: no line of {pod} can be shown: {error}")
                    break
                last = False
                if turn >= LOG_TROUBLE_TURNS:
                    over = self._has_ended(pod, identity)
                    then = "not tried again: it has ended" if over else "tried again"
                    self._say_once(pod, f"weft: the log of {pod} cannot be read, which is {then}: {error}")
                    if over:
                        break
            except WeftError as error:
                self._give_up(error)
                return
            if not last:
                self._over.wait(min(2.0, 0.05 * 2 ** min(turn, 6)))
                turn += 1
        self._news.put("log")

    def _await_older_logs(self, identity: str) -> None:
        """Let the log of the first pod before this one be read to its end; one on a lost node has none.

        A pod that is cut off from the others alone may print on and on.
        """
        began = time.monotonic()
        for other, thread in list(self._logs.items()):
            if other == identity:
                break
            before = -1
            while thread.is_alive() and before != self._log_pieces:
                if self._runs(other) and time.monotonic() - began > LEAVES_S:
                    break
                before = self._log_pieces
                thread.join(OLDER_LOG_S)
        self._newest_log = identity
        self._log.begin_pod()

    def _runs(self, identity: str) -> bool:
        """Return whether a pod is there and has not ended."""
        known = [pod for pod in self._pods.values() if pod["metadata"]["uid"] == identity]
        return any(terminated(pod) is None for pod in known)

    def _has_ended(self, pod: str, identity: str) -> bool:
        known = self._pods.get(pod)
        if known is None or known["metadata"]["uid"] != identity:
            return True
        return terminated(known) is not None

    # -- the Job ----------------------------------------------------------------------------------

    def _look_at_job(self, seconds: float) -> str | None:
        """Return why the Job is over, if it is; say why it has no pods yet."""
        job = self._job.read()
        if self.is_interrupted:
            return job_end(job)
        if job is not None and self.lease is not None:
            self.lease.renew(self.api, job, self._say_once)
        return self._job.why_over(job, self._own_pods(), seconds)
