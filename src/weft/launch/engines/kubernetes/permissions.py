"""The permissions that a run on Kubernetes needs: the least that works, as a Role, and a check of what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weft.launch.engines.kubernetes.api import ClusterApi
from weft.launch.pod_settings import Kind, KubernetesConfig

_ALWAYS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "secrets"): ("create", "patch", "delete"),
    ("", "configmaps"): ("create", "patch", "delete"),
    ("", "services"): ("create", "patch", "delete"),
    ("", "pods"): ("list", "watch"),
    ("", "pods/log"): ("get",),
    ("", "events"): ("list",),
    ("batch", "jobs"): ("create", "get", "patch", "delete"),
}
_MORE: Mapping[str, tuple[str, str]] = {
    "jobset": ("jobset.x-k8s.io", "jobsets"),
    "trainjob": ("trainer.kubeflow.org", "trainjobs"),
    "app_wrapper": ("workload.codeflare.dev", "appwrappers"),
}


def rules_for(kind: Kind, *, app_wrapper: bool = False) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the verbs that a run needs, by group and resource."""
    wanted: list[str] = [kind] if kind in _MORE else []
    wanted += ["app_wrapper"] if app_wrapper else []
    return {**_ALWAYS, **{_MORE[name]: ("create", "get", "delete") for name in wanted}}


def role(kind: Kind = "job", *, app_wrapper: bool = False, name: str = "weft-run") -> dict[str, Any]:
    """Return the Role that lets someone run things in a namespace. The pods themselves need none."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name},
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
            for (group, resource), verbs in rules_for(kind, app_wrapper=app_wrapper).items()
        ],
    }


@dataclass(frozen=True)
class Permission:
    """One thing that a run needs to be allowed, and whether it is."""

    verb: str
    resource: str
    group: str
    allowed: bool

    @property
    def text(self) -> str:
        """The permission in words."""
        return f"{self.verb} {self.resource}" + (f" of {self.group}" if self.group else "")


def check_permissions(api: ClusterApi, settings: KubernetesConfig) -> Iterator[Permission]:
    """Ask the cluster, one by one, whether we may do what a run needs."""
    rules = rules_for(settings.kind, app_wrapper=settings.app_wrapper)
    for (group, resource), verbs in rules.items():
        name, _, sub = resource.partition("/")
        for verb in verbs:
            attributes = {"namespace": api.namespace, "verb": verb, "group": group, "resource": name}
            if sub:
                attributes["subresource"] = sub
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": attributes},
            }
            answer = api.request(
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                content=json.dumps(review),
                doing="tell what we may do",
            )
            yield Permission(verb, resource, group, bool(answer.get("status", {}).get("allowed")))
