"""Strict checks of Kubernetes objects: core kinds by the schemas of each version, the others by published models."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import jsonschema

VERSIONS = tuple(f"1.{minor}" for minor in range(31, 38))
_GROUPS = {
    "batch": "batch",
    "networking.k8s.io": "networking",
    "rbac.authorization.k8s.io": "rbac",
    "apps": "apps",
}
_GROUPS |= {"policy": "policy", "": ""}


@cache
def _definitions(version: str) -> Any:
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    return json.loads((folder / "_definitions.json").read_text())["$defs"]


@cache
def validator(kind: str, api_version: str, version: str) -> Any:
    """Return the strict validator of a core kind in one version of Kubernetes."""
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    group, _, plain = api_version.rpartition("/")
    name = "-".join(filter(None, [kind.lower(), _GROUPS[group], plain]))
    schema = json.loads((folder / f"{name}.json").read_text())
    definitions = _definitions(version)
    # One document: references into another file would be looked up again for every object.
    text = json.dumps({name: part for name, part in schema.items() if name not in ("$id", "$schema")})
    whole = {**json.loads(text.replace("/api/_definitions.json#/", "#/")), "$defs": definitions}
    return jsonschema.Draft202012Validator(whole)


def check(item: dict[str, Any], version: str) -> None:
    """Raise for an object that one version of Kubernetes would not take."""
    api_version, kind = item["apiVersion"], item["kind"]
    if kind == "AppWrapper":
        _check_app_wrapper(item, version)
    elif api_version.startswith(("jobset.", "trainer.")):
        _check_round_trip(item)
        for template in _pod_templates(item):
            metadata = {"name": item["metadata"]["name"], **template.get("metadata", {})}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            validator("Pod", "v1", version).validate(pod)
    else:
        validator(kind, api_version, version).validate(item)


def _check_app_wrapper(item: dict[str, Any], version: str) -> None:
    assert item["apiVersion"] == "workload.codeflare.dev/v1beta2"
    assert set(item) == {"apiVersion", "kind", "metadata", "spec"}
    assert set(item["spec"]) == {"components"}
    for component in item["spec"]["components"]:
        assert set(component) <= {"template", "podSets", "annotations"}
        for pods in component.get("podSets", ()):
            assert set(pods) == {"replicas", "path"}
            assert _at(component, pods["path"])["spec"]["containers"]
        check(component["template"], version)


def _at(data: Any, path: str) -> Any:
    for part in path.replace("[", ".").replace("]", "").split("."):
        data = data[int(part)] if part.isdecimal() else data[part]
    return data


def _pod_templates(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pod templates of a JobSet or a runtime; a TrainJob has but patches of one."""
    spec = item["spec"] if item["kind"] == "JobSet" else item["spec"].get("template", {}).get("spec", {})
    return [job["template"]["spec"]["template"] for job in spec.get("replicatedJobs", ())]


@cache
def _model(kind: str) -> Any:
    from kubeflow_trainer_api import models

    name = "JobsetV1alpha2JobSet" if kind == "JobSet" else f"TrainerV1alpha1{kind}"
    return getattr(models, name)


def _check_round_trip(item: dict[str, Any]) -> None:
    """Raise for a field that the published model does not know: it would leave the field out."""
    kept = _model(item["kind"]).from_dict(item).to_dict()
    missing = _missing(item, kept, item["kind"])
    assert not missing, f"unknown fields: {', '.join(missing)}"


def _missing(given: Any, kept: Any, place: str) -> list[str]:
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [place]
        return [
            lost
            for key, value in given.items()
            for lost in (_missing(value, kept[key], f"{place}.{key}") if key in kept else [f"{place}.{key}"])
        ]
    if isinstance(given, list):
        if not isinstance(kept, list) or len(kept) != len(given):
            return [place]
        return [lost for one, other in zip(given, kept, strict=True) for lost in _missing(one, other, place)]
    return []
