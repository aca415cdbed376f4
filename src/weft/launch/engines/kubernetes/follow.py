"""Follows a run on a cluster from outside: why pods wait, what the workers print, how the run ended.

The log of the first pod is the console of the run (`leader_log.py`); `run_job.py` knows the Job.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from weft.errors import WeftError
from weft.launch.control.console import Console
from weft.launch.control.outcome import Failure, Outcome, log_path
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.leader_log import LeaderLog
from weft.launch.engines.kubernetes.lease import JobLease
from weft.launch.engines.kubernetes.log_reader import ContainerLogReader
from weft.launch.engines.kubernetes.objects.names import PodNames
from weft.launch.engines.kubernetes.pod_news import (
    TOLD_TO_END,
    age_of,
    describe_end,
    first_failed,
    grace_of,
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
OLDER_LOG_S = 3.0  # without a line of a lost first pod's log, until that of its replacement is read
GONE_S = 15.0  # for a Job that is over to tell so, once its first pod has ended
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
        """Whether the run was ended from here."""
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
                pods = self._own_pods()
                self._look_at_pods(pods)
                ended = self._leader_end(pods)
                if ended is not None and ended_at is None:
                    next_look = 0.0  # the Job tells whether that was all
                if ended is not None and (ended.get("exitCode") == 0 or self._has_failed()):
                    return self._outcome(ended, time.monotonic() - began, pods)
                if time.monotonic() < next_look:
                    continue
                next_look = time.monotonic() + LOOK_S
                why = self._look_at_job(time.monotonic() - began)
                if why is not None and ended is None:  # the watch may be behind the Job
                    pods = self._listed_pods()
                    self._look_at_pods(pods)
                    ended = self._leader_end(pods)
                if ended is not None or why is not None:
                    if ended_at is None or pieces != self._log_pieces:  # there may be much left to read
                        ended_at, pieces = time.monotonic(), self._log_pieces
                    if self._is_settled(why, ended, time.monotonic() - ended_at, pods):
                        if why is not None:  # another pod may have failed of which the watch has not told
                            pods = pods | self._listed_pods()
                        return self._outcome(ended or _job_failed(why or ""), time.monotonic() - began, pods)
                else:
                    ended_at = None
        finally:
            self._over.set()

    def _is_settled(
        self, why: str | None, ended: Data | None, waited_s: float, pods: dict[str, Data]
    ) -> bool:
        """Return whether nothing more will come of a run whose Job is over, or whose first pod has ended."""
        if why is None:
            # A container beside ours keeps the Job from seeing the end; an elastic run goes on in the other pods.
            held = any(index_of(pod) == 0 and runs_beside(pod) for pod in pods.values())
            return held and waited_s > GONE_S and not self.elastic
        late = waited_s > GONE_S + max(map(grace_of, pods.values()), default=0)
        return ended is not None or late or not self._leader_runs(pods)

    def _has_failed(self) -> bool:
        """Return whether an elastic run has come to its end and failed: another first pod would fail as well.

        A first pod that was taken away has not told a failure, and is replaced.
        """
        told = self._log.outcome
        return self.elastic and told is not None and told.get("failure") is not None

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

    def _listed_pods(self) -> dict[str, Data]:
        """Return the pods of this run's Job as they are now, whatever the watch has told so far."""
        uid, pods = self._job.uid, self.api.pods(self._selector)
        return {pod["metadata"]["name"]: pod for pod in pods if uid is not None and is_of(pod, uid)}

    def _look_at_pods(self, pods: dict[str, Data]) -> None:
        for name, pod in sorted(pods.items(), key=lambda item: age_of(item[1])):
            host = self._host(pod)
            if why := why_pending(pod):
                self._say_once(host, f"weft: {host} waits: {why}")
            if terminated(pod) is None and (why := why_leaving(pod)):
                self._say_once(pod["metadata"]["uid"], f"weft: {host} is taken away: {why}")
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

    def _leader_runs(self, pods: dict[str, Data]) -> bool:
        """Return whether a first pod may still tell something; after Ctrl-C, one that has not begun will not."""
        logs = list(self._logs.values())
        if logs and logs[-1].is_alive():
            return True
        leaders = [pod for pod in pods.values() if index_of(pod) == 0 and terminated(pod) is None]
        return any(has_started(pod) or not self.is_interrupted for pod in leaders)

    def _leader_end(self, pods: dict[str, Data]) -> Data | None:
        """Return how the newest first pod ended, once all of its log has been read; None while there is one."""
        leaders = sorted((pod for pod in pods.values() if index_of(pod) == 0), key=age_of)
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
        """Let the log of the first pod before this one be read to its end; one on a lost node has none."""
        for other, thread in list(self._logs.items()):
            if other == identity:
                break
            before = -1
            while thread.is_alive() and before != self._log_pieces:
                before = self._log_pieces
                thread.join(OLDER_LOG_S)
        self._newest_log = identity
        self._log.begin_pod()

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

    # -- the end ----------------------------------------------------------------------------------

    def _outcome(self, ended: Data, seconds: float, pods: dict[str, Data]) -> Outcome:
        told = self._log.outcome
        if self._interrupted is not None:
            return Outcome(
                code=128 + self._interrupted,
                codes={},
                seconds=seconds,
                interrupted_by={2: "SIGINT", 15: "SIGTERM"}.get(self._interrupted, str(self._interrupted)),
                run_dir=str(self.run_dir) if self.run_dir else None,
            )
        by_job = ended.get("exitCode") == TOLD_TO_END and (
            told is None or told.get("interrupted_by") == "SIGTERM"
        )
        lost = first_failed(pods.values()) if by_job else None
        if told is not None and lost is None:
            return outcome_from(told, self.run_dir)
        if lost is not None:  # the Job failed by another pod, and told the first one to end before it knew
            ended, host, code = terminated(lost) or ended, self._host(lost), 1
        else:
            host, code = self.names.host(0), int(ended.get("exitCode", 1))
        failure = Failure(rank=None, host=host, code=code or 1, reason=describe_end(ended))
        return Outcome(
            code=code,
            codes={},
            seconds=seconds,
            failure=failure if code else None,
            run_dir=str(self.run_dir) if self.run_dir else None,
        )


def _job_failed(why: str) -> Data:
    return {"exitCode": 0 if why == "Complete" else 1, "reason": "the Job is over", "message": why}


def outcome_from(told: Data, run_dir: Path | None) -> Outcome:
    """Return the outcome that the first pod wrote down, with the folders of this machine."""
    known = Outcome.__dataclass_fields__
    fields = {name: value for name, value in told.items() if name in known}
    failure = fields.pop("failure", None)
    codes = {int(rank): code for rank, code in fields.pop("codes", {}).items()}
    outcome = Outcome(**fields, codes=codes)
    if failure is not None:
        made = Failure(**failure)
        log = log_path(run_dir, made.rank) if made.rank is not None else None
        outcome = replace(outcome, failure=replace(made, log=log))
    return replace(outcome, run_dir=str(run_dir) if run_dir else None)
