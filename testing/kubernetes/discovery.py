"""The answers by which clients other than ours, kubectl among them, find out what our own API server has; pure."""

from __future__ import annotations

from testing.kubernetes.objects import KINDS, Data

_VERBS = ["create", "delete", "get", "list", "patch", "watch"]


def answer_to(path: str, version: str) -> Data | None:
    """Return what a server says at a path of discovery; None for any other path."""
    versions = sorted({api_version for api_version, _ in KINDS.values()})
    match path.strip("/").split("/"):
        case ["version"]:
            major, _, minor = version.partition(".")
            return {"major": major, "minor": minor, "gitVersion": f"v{version}.0"}
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ["apis"]:
            groups = [_group(one) for one in versions if "/" in one]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api" | "apis", *words] if "/".join(words) in versions:
            return _resources("/".join(words))
    return None


def _group(api_version: str) -> Data:
    name, _, version = api_version.partition("/")
    served = {"groupVersion": api_version, "version": version}
    return {"name": name, "versions": [served], "preferredVersion": served}


def _resources(api_version: str) -> Data:
    found = [
        {"name": name, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": _VERBS}
        for name, (version, kind) in KINDS.items()
        if version == api_version
    ]
    if api_version == "v1":
        found.append(
            {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]}
        )
    return {"kind": "APIResourceList", "groupVersion": api_version, "resources": found}
