"""A run on a cluster, carried out: apply its objects, follow it, and take them away again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from weft.documents import read_document
from weft.errors import UsageError
from weft.files import write_whole
from weft.launch.control.conductor import signals_to
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.follow import RunFollower
from weft.launch.engines.kubernetes.lease import JobLease
from weft.launch.engines.kubernetes.objects.manifests import ManifestRequest
from weft.launch.engines.kubernetes.objects.names import PodNames, pod_names
from weft.launch.engines.kubernetes.objects.pod_spec import Data
from weft.launch.pod_settings import Kind, KubernetesConfig

FILE = "kubernetes.json"  # in the run directory


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a run, for those who scale it or come back to it: the content of `kubernetes.json`."""

    name: str
    kind: Kind
    namespace: str
    context: str | None = None
    kubeconfig: str | None = None
    elastic: bool = False
    uid: str | None = None  # of the Job, where a Job is what was applied
    client_s: int | None = None  # without a client after which the run is to end
    deadline_s: int | None = None
    detached: bool = False  # left alone, so that it goes on when those who look at it leave
    objects: tuple[dict[str, str], ...] = ()  # kind, version and name of each, in the order of their creation

    @property
    def settings(self) -> KubernetesConfig:
        """The settings with which its cluster is reached."""
        return KubernetesConfig(
            namespace=self.namespace, context=self.context, kubeconfig=self.kubeconfig, kind=self.kind
        )


def run_on_cluster(
    request: ManifestRequest, objects: Sequence[Data], console: Console, run_dir: Path | None
) -> Outcome:
    """Apply the objects of a run, and follow it unless it is to be left alone."""
    with closing(ClusterApi(request.settings)) as api, _Signals() as signals:
        api.on_warning = lambda text: console.say(f"weft: the cluster warns: {text}")
        made = api.apply(objects)
        try:
            where = _write_down(request, objects, made, api, run_dir)
            lease = _lease(where)
            if lease is not None:  # at once: the client may die any moment
                lease.renew(api, made, lambda _, text: console.say(text))
        except BaseException:
            api.delete(objects)
            raise
        if request.settings.detach:
            console.say(
                f"weft: {objects[-1]['kind']} {request.names.name} runs in the namespace {api.namespace}; "
                f"follow it: weft kubernetes attach {run_dir}"
            )
            return Outcome(code=0, codes={}, seconds=0.0, run_dir=str(run_dir) if run_dir else None)
        return _follow(api, where, objects, console, run_dir, signals, lease)


def _lease(where: ClusterRun) -> JobLease | None:
    return None if where.client_s is None else JobLease(where.client_s, where.deadline_s)


class _Signals(contextlib.AbstractContextManager["_Signals"]):
    """Ctrl-C and its kin over a whole run: they end this at once until somebody else takes them."""

    def __init__(self) -> None:
        self.handle: Callable[[int], None] = self._leave
        self._taken = signals_to(lambda number: self.handle(number))

    @staticmethod
    def _leave(number: int) -> None:
        raise SystemExit(128 + number)

    def __enter__(self) -> _Signals:
        self._taken.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._taken.__exit__(*problem)


def attach(run_dir: Path, console: Console) -> Outcome:
    """Follow a run that was left alone, to its end."""
    where = read_run(run_dir)
    for log in run_dir.glob("rank-*.log"):  # the cluster has all of it, from the first line on
        log.unlink()
    with closing(ClusterApi(where.settings)) as api, _Signals() as signals:
        try:
            return _follow(api, where, _references(where), console, run_dir, signals, _lease(where))
        except SystemExit:
            if where.detached:
                console.say(f"weft: the run goes on; end it: weft kubernetes delete {run_dir}")
            raise


def delete(run_dir: Path) -> str:
    """End a run, and take all its objects away; return its name."""
    where = read_run(run_dir)
    with closing(ClusterApi(where.settings)) as api:
        api.delete(_references(where))
    return where.name


def _follow(
    api: ClusterApi,
    where: ClusterRun,
    objects: Sequence[Data],
    console: Console,
    run_dir: Path | None,
    signals: _Signals,
    lease: JobLease | None,
) -> Outcome:
    names = PodNames(where.name, where.kind)
    container = "node" if where.kind == "trainjob" else "worker"
    maker = None if objects[-1]["kind"] == "Job" else objects[-1]
    follower = RunFollower(api, names, container, console, run_dir, where.elastic, where.uid, maker, lease)

    def end() -> None:
        console.say("weft: ending the run (again to leave at once)")
        _delete_main(api, objects)

    def stop(number: int) -> None:
        # Its pods are asked to end, and what they still print is shown; a second signal leaves at once.
        if follower.is_interrupted:
            raise SystemExit(128 + number)
        follower.interrupt(number)
        # In a thread: the signal may have come in the middle of a line of ours, which cannot be printed into.
        threading.Thread(target=end, daemon=True).start()

    if not where.detached:
        signals.handle = stop
    is_over = False
    try:
        outcome = follower.follow()
        is_over = True
        return outcome
    finally:
        if is_over or not where.detached:
            with contextlib.suppress(ClusterError):
                api.delete(objects)


def _delete_main(api: ClusterApi, objects: Sequence[Data]) -> None:
    with contextlib.suppress(ClusterError):
        api.delete(objects[-1:])


def _write_down(
    request: ManifestRequest, objects: Sequence[Data], made: Data, api: ClusterApi, run_dir: Path | None
) -> ClusterRun:
    settings = request.settings
    is_job = made["kind"] == "Job"  # of other kinds the deadline does not change
    where = ClusterRun(
        name=request.names.name,
        kind=request.settings.kind,
        namespace=api.namespace,
        context=request.settings.context,
        kubeconfig=request.settings.kubeconfig,
        elastic=request.settings.elastic,
        uid=made["metadata"]["uid"] if is_job else None,
        client_s=settings.client_s if is_job and not settings.detach else None,
        deadline_s=settings.deadline_s,
        detached=settings.detach,
        objects=tuple(
            {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": item["metadata"]["name"]}
            for item in objects
        ),
    )
    if run_dir is not None:
        write_whole(run_dir / FILE, msgspec.json.encode(where) + b"\n")
    return where


def read_run(run_dir: Path) -> ClusterRun:
    """Return where a run of this directory is; raise `UsageError` if it is not on a cluster."""
    path = run_dir / FILE
    if not path.exists():
        raise UsageError(
            f"{run_dir} must be a run on Kubernetes, got no {FILE}; was it started with --engine kubernetes?"
        )
    return read_document(path, ClusterRun)


def _references(where: ClusterRun) -> list[Data]:
    return [
        {"apiVersion": item["apiVersion"], "kind": item["kind"], "metadata": {"name": item["name"]}}
        for item in where.objects
    ]


def scale_pods(run_dir: Path, pods: int) -> None:
    """Have an elastic run go on with another number of pods; the ones with the highest indexes leave first."""
    where = read_run(run_dir)
    if not where.elastic:
        raise UsageError(
            f"a run must be elastic to be scaled, got {run_dir}; start it with --elastic MIN:MAX"
        )
    if where.kind != "job" or where.objects[-1]["kind"] == "AppWrapper":
        raise UsageError(
            f"only a Job has another number of pods while it runs, got a {where.objects[-1]['kind']}; "
            "start it with --as job"
        )
    pod_names(where.name, where.name, where.kind, pods)  # the last pod's must still be a name
    with closing(ClusterApi(where.settings)) as api:
        api.patch(_references(where)[-1], {"spec": {"parallelism": pods, "completions": pods}})
