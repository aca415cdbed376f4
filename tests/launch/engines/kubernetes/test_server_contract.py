"""What our engine expects of an API server, its scheduler and its Job controller; no pod runs, so no kubelet is needed.

On the cluster of our own, and on a real one (kind, k3s, or a bare API server with its controllers) where
`WEFT_TEST_KUBECONFIG` names a kubeconfig: `WEFT_TEST_NAMESPACE`, or that of its context, must let us create pods.
"""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from testing.cluster.waiting import wait_until
from testing.kubernetes import real_cluster
from testing.kubernetes.api_server import VirtualKubernetes
from testing.shell import Shell

from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.lease import lease_change
from weft.launch.engines.kubernetes.objects.manifests import manifests
from weft.launch.engines.kubernetes.objects.request import make_request
from weft.launch.engines.kubernetes.objects.snapshot import PART_BYTES
from weft.launch.engines.kubernetes.permissions import check_permissions
from weft.launch.engines.kubernetes.pod_news import index_of, job_end, warnings_in, why_pending
from weft.launch.engines.kubernetes.trial import try_run
from weft.launch.pod_settings import KubernetesConfig, PodToleration

Data = dict[str, Any]
NOWHERE = {"weft.test/no-such-node": "true"}  # pods that no node may have stay pending


@dataclass
class Server:
    """One API server; names are drawn for each test."""

    kubeconfig: Path
    namespace: str | None
    api: ClusterApi
    collects: bool = True  # whether what belongs to an object goes with it

    def objects(self, *, code: bytes | None = None, **fields: Any) -> list[Data]:
        """Return the objects of a run whose pods wait for ever."""
        pods = KubernetesConfig(
            image="none:1",
            name=f"weft-{secrets.token_hex(4)}",
            namespace=self.namespace,
            node_selector=NOWHERE,
            **fields,
        )
        config = LaunchConfig(command=Command("command", "true"), engine="kubernetes", kubernetes=pods)
        return list(manifests(replace(make_request(config, door_secret=secrets.token_hex()), code=code)))

    def pods(self, objects: list[Data]) -> list[Data]:
        """Return the pods of a run."""
        return self.api.pods(f"batch.kubernetes.io/job-name={objects[-1]['metadata']['name']}")

    def indexes(self, objects: list[Data]) -> list[int | None]:
        """Return the indexes of the pods that are not on their way out."""
        return sorted(
            (index_of(pod) for pod in self.pods(objects) if "deletionTimestamp" not in pod["metadata"]),
            key=str,
        )

    def has_indexes(self, objects: list[Data], wanted: list[int]) -> bool:
        """Return whether a run has these pods and no others."""
        return self.indexes(objects) == wanted

    def is_warned(self, identity: str, reason: str) -> bool:
        """Return whether an event warns of an object for a reason."""
        return any(text.startswith(reason) for text in warnings_in(self.api.events(uid=identity)))

    def is_gone(self, item: Data) -> bool:
        """Return whether an object is no more."""
        return real_cluster.is_gone(self.api, item)


@pytest.fixture(params=["ours", *(["real"] if real_cluster.KUBECONFIG else [])])
def api_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    if request.param == "real":
        real_cluster.prepare()
        settings = real_cluster.settings()
        with closing(ClusterApi(settings)) as api:
            collects = real_cluster.collects_garbage()
            yield Server(real_cluster.kubeconfig(), settings.namespace, api, collects)
        return
    (tmp_path / "cluster").mkdir()
    with VirtualKubernetes(tmp_path / "cluster") as cluster:
        cluster.unschedulable = set(range(100))
        with closing(ClusterApi(KubernetesConfig(kubeconfig=str(cluster.kubeconfig)))) as api:
            yield Server(cluster.kubeconfig, None, api)


@pytest.fixture
def applied(api_server: Server) -> Iterator[Callable[..., list[Data]]]:
    """Applies the objects of a run; they are taken away with the test."""
    made: list[list[Data]] = []

    def apply(**fields: Any) -> list[Data]:
        objects = api_server.objects(**fields)
        made.append(objects)
        api_server.api.apply(objects)
        return objects

    yield apply
    for objects in made:
        real_cluster.sweep(api_server.api, objects)


def await_(what: str, is_so: Callable[[], bool]) -> None:
    wait_until(is_so, what, timeout_s=60)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"elastic": True, "pods": 2},
        {"pods": 2, "retries": 3, "deadline_s": 600, "labels": {"team": "vision"}},
        {"resources": {"cpu": 1, "memory": "4Gi", "nvidia.com/gpu": 1}, "host_network": True},
        {
            "tolerations": (
                PodToleration(key="a", operator="Equal", value="b", effect="NoExecute", seconds=5),
            ),
            "secrets": {"TOKEN": "keys/token"},
        },
        {"code": b"x" * (PART_BYTES + 1)},
    ],
    ids=["plain", "elastic", "retries", "resources", "tolerations", "snapshot"],
)
def test_all_that_we_make_is_taken_and_goes_with_its_job(
    api_server: Server, applied: Callable[..., list[Data]], fields: dict[str, Any]
) -> None:
    objects = applied(**fields)
    job = api_server.api.read(objects[-1])
    assert job is not None
    assert job_end(job) is None
    api_server.api.delete(objects[-1:])
    await_("the Job is gone", lambda: api_server.api.read(objects[-1]) is None)
    if not api_server.collects:
        return
    for item in objects[:-1]:  # they belong to it
        await_(f"{item['kind']} is gone", partial(api_server.is_gone, item))
    await_("its pods are gone", lambda: api_server.pods(objects) == [])


def test_pods_have_names_an_index_and_a_reason_to_wait(
    api_server: Server, applied: Callable[..., list[Data]]
) -> None:
    objects = applied(pods=2)
    await_("both pods", lambda: api_server.indexes(objects) == [0, 1])
    name = objects[-1]["metadata"]["name"]
    for pod in api_server.pods(objects):
        assert pod["spec"]["hostname"] == f"{name}-{index_of(pod)}"
        assert pod["spec"]["subdomain"] == name
    await_("a reason", lambda: all("Unschedulable" in why_pending(pod) for pod in api_server.pods(objects)))


def test_an_elastic_job_grows_and_loses_its_last_pods(
    api_server: Server, applied: Callable[..., list[Data]]
) -> None:
    objects = applied(pods=2, elastic=True)
    await_("two pods", lambda: api_server.indexes(objects) == [0, 1])
    for pods in (4, 1):
        api_server.api.patch(objects[-1], {"spec": {"parallelism": pods, "completions": pods}})
        await_(f"{pods} pods", partial(api_server.has_indexes, objects, list(range(pods))))


def test_a_job_that_is_suspended_loses_its_pods_and_gets_them_back(
    api_server: Server, applied: Callable[..., list[Data]]
) -> None:
    """As a queue does that takes a run out: no failure is counted, though the Job allows none."""
    objects = applied(pods=2)
    for suspend, indexes in ((True, []), (False, [0, 1])):
        await_("its pods", partial(api_server.has_indexes, objects, [] if not suspend else [0, 1]))
        api_server.api.patch(objects[-1], {"spec": {"suspend": suspend}})
        await_(f"{len(indexes)} pods", partial(api_server.has_indexes, objects, indexes))
    assert job_end(api_server.api.read(objects[-1])) is None


def test_events_are_found_by_what_they_are_about(
    api_server: Server, applied: Callable[..., list[Data]]
) -> None:
    objects = applied(pods=2)
    await_("both pods", lambda: api_server.indexes(objects) == [0, 1])
    for pod in api_server.pods(objects):
        identity = pod["metadata"]["uid"]
        await_("an event", partial(api_server.is_warned, identity, "FailedScheduling"))
        names = {event["involvedObject"]["name"] for event in api_server.api.events(uid=identity)}
        assert names == {pod["metadata"]["name"]}


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({"kind": "jobset"}, ["Secret", "JobSet"]),
        ({"kind": "trainjob", "deadline_s": 600}, ["Secret", "TrainJob"]),
        ({"app_wrapper": True, "pods": 2}, ["Secret", "AppWrapper"]),
        ({"app_wrapper": True, "kind": "jobset"}, ["Secret", "AppWrapper"]),
        ({"queue": "research", "elastic": True, "pods": 2}, ["Secret", "Service", "Job"]),
    ],
    ids=["jobset", "trainjob", "wrapped job", "wrapped jobset", "queued"],
)
def test_other_kinds_are_taken_where_they_are_installed(
    api_server: Server, fields: dict[str, Any], kinds: list[str]
) -> None:
    found = dict(try_run(api_server.api, KubernetesConfig(namespace=api_server.namespace, **fields)))
    assert list(found) == kinds
    last = found.pop(kinds[-1])
    assert set(found.values()) == {""}
    if str(api_server.kubeconfig) != real_cluster.KUBECONFIG:
        assert last == "" or kinds[-1] == "TrainJob"  # of which ours has none
        return
    if "got 404" in last:
        pytest.skip(f"the cluster has no {kinds[-1]}")
    if kinds[-1] == "TrainJob" and "runtime" in last.lower():
        pytest.skip("the cluster has no ClusterTrainingRuntime weft: weft kubernetes runtime")
    assert last == ""


@pytest.mark.parametrize("change", [{"completions": 3}, {"completionMode": "NonIndexed"}])
def test_what_may_not_change_is_refused(
    api_server: Server, applied: Callable[..., list[Data]], change: dict[str, Any]
) -> None:
    objects = applied(pods=2, elastic=True)
    with pytest.raises(ClusterError) as refused:
        api_server.api.patch(objects[-1], {"spec": change})
    assert refused.value.status == 422


def test_a_field_that_no_version_knows_is_refused(api_server: Server) -> None:
    (*_, job) = api_server.objects()
    job["spec"]["template"]["spec"]["memory"] = "1Gi"
    with pytest.raises(ClusterError, match="memory") as refused:
        api_server.api.create(job)
    assert refused.value.status in (400, 422)


def test_a_name_that_is_taken_leaves_the_other_run_alone(
    api_server: Server, applied: Callable[..., list[Data]]
) -> None:
    objects = applied()
    other = api_server.objects()
    for item in other:
        item["metadata"]["name"] = objects[0]["metadata"]["name"]
    with pytest.raises(UsageError, match="a name that is free"):
        api_server.api.apply(other)
    assert not any(api_server.is_gone(item) for item in objects)
    assert api_server.api._made_before(other[0]) is None  # it has another secret
    assert api_server.api._made_before(objects[0]) is not None


def test_a_watch_tells_what_happens_after_its_list(
    api_server: Server, applied: Callable[..., list[Data]]
) -> None:
    objects = applied(pods=1, elastic=True)
    over, seen = threading.Event(), []
    for pods in api_server.api.watch_pods(
        f"batch.kubernetes.io/job-name={objects[-1]['metadata']['name']}", over
    ):
        seen.append(sorted({index_of(pod) for pod in pods.values()}, key=str))
        if seen[-1] == [0] and len(seen) < 50 and [0, 1] not in seen:
            api_server.api.patch(objects[-1], {"spec": {"parallelism": 2, "completions": 2}})
        if seen[-1] == [0, 1]:
            break
    over.set()
    assert seen[-1] == [0, 1]


def test_a_pod_that_waits_has_no_log_yet(api_server: Server, applied: Callable[..., list[Data]]) -> None:
    objects = applied()
    await_("its pod", lambda: api_server.indexes(objects) == [0])
    name = api_server.pods(objects)[0]["metadata"]["name"]
    # A real server answers with nothing for a pod without a node, and 400 for one whose container waits.
    try:
        assert b"".join(api_server.api.log(name, "worker", since=None, follow=False)) == b""
    except ClusterError as error:
        assert error.status == 400  # noqa: PT017


def test_we_may_do_what_a_run_needs(api_server: Server) -> None:
    settings = KubernetesConfig(namespace=api_server.namespace)
    assert [one.text for one in check_permissions(api_server.api, settings) if not one.allowed] == []


@pytest.mark.parametrize("fields", [{}, {"elastic": True, "pods": 3}], ids=["plain", "elastic"])
def test_a_run_on_trial_leaves_nothing(api_server: Server, fields: dict[str, Any]) -> None:
    settings = KubernetesConfig(namespace=api_server.namespace, labels={"weft.test/trial": "yes"}, **fields)
    assert dict(try_run(api_server.api, settings)) == {"Secret": "", "Service": "", "Job": ""}
    assert api_server.api.pods("weft.test/trial=yes") == []


def test_a_run_says_why_it_waits_and_ctrl_c_leaves_nothing(api_server: Server, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    shell = Shell(tmp_path / "here")
    name = f"weft-{secrets.token_hex(4)}"
    settings = tmp_path / "cluster.yaml"
    settings.write_text(f"image: none:1\nname: {name}\nnode_selector: {{weft.test/no-such-node: 'true'}}\n")
    if api_server.namespace is not None:
        settings.write_text(f"{settings.read_text()}namespace: {api_server.namespace}\n")
    process = shell.start(
        *("run", "--engine", "kubernetes", "--kubernetes", str(settings), "--", "true"),
        KUBECONFIG=str(api_server.kubeconfig),
    )
    assert process.stderr is not None
    for line in process.stderr:  # a cluster may have warnings before
        if f"{name}-0 waits: Unschedulable: " in line:
            break
    else:
        pytest.fail(f"the run has ended: {process.wait()}")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=240)
    assert process.returncode == 130, rest
    assert api_server.api.read({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}) is None
    if api_server.collects:
        await_("no pods", lambda: api_server.api.pods(f"batch.kubernetes.io/job-name={name}") == [])
    shell.close()


def test_a_job_ends_at_a_deadline_that_is_set_later(
    api_server: Server, applied: Callable[..., list[Data]]
) -> None:
    """As it does when the client of a run has died."""
    objects = applied(pods=2, deadline_s=600)
    job = api_server.api.read(objects[-1])
    assert job is not None
    change = lease_change(job, client_s=1, deadline_s=600, now_s=api_server.api.now_s)
    change["spec"]["ttlSecondsAfterFinished"] = 600  # for another controller takes ended Jobs away
    api_server.api.patch(objects[-1], change)
    await_("its end", lambda: str(job_end(api_server.api.read(objects[-1]))).startswith("DeadlineExceeded"))
    await_("no pods", lambda: api_server.indexes(objects) == [])
