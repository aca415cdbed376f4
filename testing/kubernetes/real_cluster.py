"""A real cluster that `WEFT_TEST_KUBECONFIG` names, and what it has: a bare API server has less than a whole cluster.

An API server with its scheduler and its Job controller is enough for most tests. Whether it has a garbage collector,
and kubelets that run containers, is tried out once.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.objects.manifests import manifests
from weft.launch.engines.kubernetes.objects.request import make_request
from weft.launch.engines.kubernetes.pod_news import has_started, terminated, why_pending
from weft.launch.pod_settings import KubernetesConfig

Data = dict[str, Any]
KUBECONFIG = os.environ.get("WEFT_TEST_KUBECONFIG")
NAMESPACE = os.environ.get("WEFT_TEST_NAMESPACE")
PLAIN_IMAGE = os.environ.get("WEFT_TEST_PLAIN_IMAGE", "docker.io/library/python:3.12-slim")
IMAGE = os.environ.get("WEFT_TEST_IMAGE")
COLLECTED_WITHIN_S = 30.0
NO_NODE_S = 20.0  # without a node for a pod, after which there is none
STARTED_WITHIN_S = 180.0  # with its image pulled


def settings(**fields: Any) -> KubernetesConfig:
    """Return settings for runs on the real cluster."""
    return KubernetesConfig(kubeconfig=KUBECONFIG, namespace=NAMESPACE, **fields)


def kubeconfig() -> Path:
    """Return the kubeconfig of the real cluster."""
    assert KUBECONFIG is not None
    return Path(KUBECONFIG)


@cache
def prepare() -> None:
    """Make the namespace and the account of its pods where nobody else does, and we may."""
    with closing(ClusterApi(settings())) as api:
        for item in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
        ):
            place = "/api/v1/namespaces"
            if item["kind"] == "ServiceAccount":
                place = f"{place}/{api.namespace}/serviceaccounts"
            with suppress(ClusterError):  # it is there, or not for us to make
                api.request("POST", place, content=json.dumps(item), doing=f"create {item['kind']}")


@cache
def collects_garbage() -> bool:
    """Return whether what belongs to an object goes with it: not so on an API server without that controller."""
    if KUBECONFIG is None:
        return True
    with closing(ClusterApi(settings())) as api:
        name = f"weft-{secrets.token_hex(4)}"
        maps: list[Data] = [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"{name}-{part}"}}
            for part in ("owned", "owner")
        ]
        owner = [api.create(item) for item in maps][1]
        api._give_to(maps[0], owner)
        api.delete(maps[1:])
        deadline = time.monotonic() + COLLECTED_WITHIN_S
        while not (gone := is_gone(api, maps[0])) and time.monotonic() < deadline:
            time.sleep(0.2)
        api.delete(maps)
        return gone


def is_gone(api: ClusterApi, item: Data) -> bool:
    """Return whether an object is no more; an empty change needs no right to read secrets."""
    try:
        api.patch(item, {})
    except ClusterError as error:
        return error.status == 404
    return False


def sweep(api: ClusterApi, objects: list[Data]) -> None:
    """Delete the objects of a run; its pods too, where no controller does that."""
    api.delete(objects)
    if KUBECONFIG is not None and not collects_garbage():
        for pod in api.pods(f"batch.kubernetes.io/job-name={objects[-1]['metadata']['name']}"):
            with suppress(ClusterError):
                api.delete(
                    [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod["metadata"]["name"]}}]
                )


@cache
def why_no_containers() -> str | None:
    """Return why no container runs on the real cluster, by a pod that prints a word; None where it does."""
    pods = settings(image=PLAIN_IMAGE, name=f"weft-{secrets.token_hex(4)}", workdir="/tmp", grace_s=1)
    config = LaunchConfig(command=Command("command", "true"), engine="kubernetes", kubernetes=pods)
    request = make_request(config, door_secret=secrets.token_hex())
    objects = list(manifests(replace(request, command=("python", "-c", "print('a word')"))))
    with closing(ClusterApi(pods)) as api:
        api.apply(objects)
        try:
            return _why_silent(api, f"batch.kubernetes.io/job-name={pods.name}")
        finally:
            sweep(api, objects)


def _why_silent(api: ClusterApi, selector: str) -> str | None:
    began, last = time.monotonic(), "no pod is made"
    while (waited := time.monotonic() - began) < STARTED_WITHIN_S:
        for pod in api.pods(selector):
            last = why_pending(pod) or f"its pod is {pod.get('status', {}).get('phase')}"
            if terminated(pod) is not None and has_started(pod):
                with suppress(ClusterError):
                    printed = b"".join(api.log(pod["metadata"]["name"], "worker", since=None, follow=False))
                    return None if b"a word" in printed else "its containers print nothing"
                return "the logs of its containers cannot be read"
        if "Unschedulable" in last and waited > NO_NODE_S:
            break
        time.sleep(0.2)
    return f"no container runs on the cluster of WEFT_TEST_KUBECONFIG: {last}"
