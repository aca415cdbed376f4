"""Manifests of runs on Kubernetes: fifty kinds of requests against the strict schemas, and the laws they keep."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from testing.kubernetes import go_yaml
from testing.kubernetes.kubelet import expanded
from testing.kubernetes.rules.schemas import VERSIONS, check
from testing.kubernetes.rules.validation import problems, restricted_problems, update_problems

from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines.kubernetes.objects.manifests import ManifestRequest, manifests, training_runtime
from weft.launch.engines.kubernetes.objects.names import LONGEST_LABEL, pod_names
from weft.launch.engines.kubernetes.objects.pod_spec import literal
from weft.launch.engines.kubernetes.objects.request import make_request
from weft.launch.engines.kubernetes.objects.snapshot import PART_BYTES
from weft.launch.engines.kubernetes.objects.yaml_text import one_to_yaml, to_yaml
from weft.launch.pod_settings import (
    Kind,
    KubernetesConfig,
    PodToleration,
    PodTopology,
    PodVolume,
)

IMAGE = "registry.example.org/team/train:2"
# One request for each thing that can be asked for; all of them also as other kinds of objects, below.
REQUESTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "many": {"pods": 1000},
    "resources": {
        "resources": {"cpu": 8, "memory": "32Gi", "nvidia.com/gpu": 4},
        "requests": {"cpu": "500m"},
    },
    "fabric": {"resources": {"rdma/hca": "1"}, "capabilities": ("IPC_LOCK",)},
    "placed": {
        "node_selector": {"gpu": "h100"},
        "tolerations": (PodToleration(key="gpu", effect="NoSchedule"),),
    },
    "tolerant": {
        "tolerations": (PodToleration(key="a", operator="Equal", value="b", effect="NoExecute", seconds=5),)
    },
    "account": {"service_account": "trainer", "pull_secrets": ("registry",)},
    "volumes": {
        "volumes": (
            PodVolume(at="/data", claim="data", read_only=True),
            PodVolume(at="/etc/train", config_map="train"),
            PodVolume(at="/keys", secret="keys", sub_path="id"),
            PodVolume(at="/nfs", nfs="files:/export/a"),
            PodVolume(at="/scratch", empty="10Gi"),
        )
    },
    "node folder": {"root": True, "volumes": (PodVolume(at="/node", host_path="/mnt/data"),)},
    "environment": {"env": {"A": "b: 'c' $(HOME)"}, "secrets": {"TOKEN": "keys/token"}},
    "no shm": {"shm": None},
    "identity": {"run_as_user": 7, "run_as_group": 8, "fs_group": 9},
    "networks": {"networks": ("fast-0", "other/fast-1")},
    "queue": {"queue": "research", "queue_priority": "high", "topology": PodTopology(required="rack")},
    "near": {"queue": "research", "topology": PodTopology(preferred="rack")},
    "elastic": {"elastic": True, "extra_args": ("--elastic", "2:4"), "pods": 4},
    "elastic in a queue": {"elastic": True, "queue": "research", "pods": 4},
    "labels": {"labels": {"team": "vision"}, "annotations": {"example.org/ticket": "a b"}},
    "times": {"deadline_s": 3600, "grace_s": 120},
    "snapshot": {"code": "snapshot"},
    "place": {"namespace": "training", "name": "mine"},
}
ONLY_JOBS: dict[str, dict[str, Any]] = {
    "host network": {"host_network": True, "pods": 2},
    "scheduling": {"priority_class": "high", "scheduler": "volcano", "pull_policy": "Always"},
    "retries": {"retries": 3},
    "kept": {"keep_s": None},
}


def request(**fields: Any) -> ManifestRequest:
    pods = KubernetesConfig(**{"image": IMAGE, **fields})
    config = LaunchConfig(
        command=Command("script", "train.py", ("--lr", "3")),
        engine="kubernetes",
        env=(("HF_TOKEN", "hush"), ("LEVEL", "3")),
        kubernetes=msgspec.structs.replace(pods, code="image"),
    )
    made = make_request(config, door_secret="knock", code=b"tar" if pods.code == "snapshot" else None)
    return replace(made, settings=pods)


def cases() -> list[Any]:
    found = [
        pytest.param({**fields, "kind": kind}, id=f"{name} as {kind}")
        for name, fields in REQUESTS.items()
        for kind in ("job", "jobset", "trainjob")
    ]
    found += [
        pytest.param({**fields, "kind": kind}, id=f"{name} as {kind}")
        for name, fields in ONLY_JOBS.items()
        for kind in ("job", "jobset")
    ]
    found += [
        pytest.param({"kind": kind, "app_wrapper": True, "pods": 3}, id=f"{kind} in an AppWrapper")
        for kind in ("job", "jobset")
    ]
    return [*found, pytest.param({"app_wrapper": True, "queue": "research"}, id="queued AppWrapper")]


@pytest.mark.parametrize("fields", cases())
def test_every_object_passes_the_strict_schemas(fields: dict[str, Any]) -> None:
    """The newest and the oldest version for every request; all versions below."""
    for item in manifests(request(**fields)):
        for version in (VERSIONS[0], VERSIONS[-1]):
            check(item, version)
        assert problems(item) == []


@pytest.mark.parametrize(
    "name", sorted({*REQUESTS, *ONLY_JOBS} - {"node folder", "host network", "fabric", "volumes"})
)
def test_pods_pass_the_restricted_profile_unless_more_was_asked_for(name: str) -> None:
    pods = manifests(request(**{**REQUESTS, **ONLY_JOBS}[name]))[-1]["spec"]["template"]["spec"]
    assert restricted_problems(pods) == []


def test_the_restricted_profile_refuses_what_it_must() -> None:
    """The check itself can fail: root, folders of the node, its network, capabilities."""
    for name, why in {
        "node folder": "runAsNonRoot != true",
        "host network": "host namespaces",
        "fabric": "unrestricted capabilities",
        "volumes": "volume type nfs",
    }.items():
        pods = manifests(request(**{**REQUESTS, **ONLY_JOBS}[name]))[-1]["spec"]["template"]["spec"]
        assert why in restricted_problems(pods)


def test_a_variable_of_the_run_gives_way_to_one_of_the_settings() -> None:
    """A cluster takes the last of two and `kubectl apply` neither: there must be one."""
    job = manifests(request(env={"LEVEL": "4"}, secrets={"HF_TOKEN": "hub/token"}))[-1]
    env = job["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [one["value"] for one in env if one["name"] == "LEVEL"] == ["4"]
    assert [one["valueFrom"]["secretKeyRef"]["name"] for one in env if one["name"] == "HF_TOKEN"] == ["hub"]


def test_a_job_is_scaled_by_both_numbers_and_nothing_else_of_it_changes() -> None:
    job = manifests(request(pods=4, elastic=True))[-1]
    assert update_problems(job, {**job, "spec": {**job["spec"], "parallelism": 2, "completions": 2}}) == []
    more = {**job["spec"]["template"], "metadata": {"labels": {"team": "vision"}}}
    for change in ({"completions": 2}, {"podReplacementPolicy": "Failed"}, {"template": more}):
        assert update_problems(job, {**job, "spec": {**job["spec"], **change}})


def test_a_queue_may_choose_the_nodes_of_a_job_that_has_not_begun_and_nothing_else() -> None:
    job = manifests(request(pods=2, queue="research"))[-1]
    waits = {**job, "spec": {**job["spec"], "suspend": True}}
    template = job["spec"]["template"]
    placed = {**template, "spec": {**template["spec"], "nodeSelector": {"pool": "a100"}}}
    other = {**template, "spec": {**template["spec"], "restartPolicy": "OnFailure"}}

    def changes(before: dict[str, Any], pods: dict[str, Any]) -> list[str]:
        return update_problems(before, {**before, "spec": {**before["spec"], "template": pods}})

    assert changes(waits, placed) == []
    assert changes(waits, other)
    assert changes(job, placed)
    assert changes({**waits, "status": {"startTime": "2026-11-19T00:00:00Z"}}, placed)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_takes_a_run_that_asks_for_everything(version: str) -> None:
    everything = {
        **REQUESTS["volumes"],
        **REQUESTS["resources"],
        **REQUESTS["elastic in a queue"],
        **REQUESTS["times"],
    }
    everything |= {
        **REQUESTS["identity"],
        **REQUESTS["networks"],
        **ONLY_JOBS["scheduling"],
        "code": "snapshot",
    }
    for item in manifests(request(**everything)):
        check(item, version)


def test_our_training_runtime_passes_the_published_models() -> None:
    check(training_runtime(), VERSIONS[-1])


def test_a_field_that_no_schema_knows_is_caught() -> None:
    """The checks themselves can fail."""
    job = manifests(request())[-1]
    job["spec"]["template"]["spec"]["containers"][0]["memory"] = "1Gi"
    with pytest.raises(Exception, match="memory"):
        check(job, "1.31")
    jobset = manifests(request(kind="jobset"))[-1]
    jobset["spec"]["suspended"] = True
    with pytest.raises(AssertionError, match="suspended"):
        check(jobset, "1.31")


def test_what_is_printed_is_what_is_meant() -> None:
    objects = manifests(
        request(env={"NO": "no", "OCTAL": "0o7", "SIXTY": "1:30", "EMPTY": "", "LINES": "a\nb"})
    )
    assert list(yaml.safe_load_all(to_yaml(objects))) == list(objects)


# Text that some parser of YAML takes for something else: options of training scripts among it.
DOUBTFUL = (
    *(
        "1e-3",
        "1E5",
        "-5e1",
        "+1e+3",
        "0o7",
        "0x1F",
        "0b1",
        "1_000",
        ".5",
        "1.",
        "1:30",
        "2026-11-18",
        "-",
        ".inf",
    ),
    *(
        "y",
        "N",
        "yes",
        "Off",
        "TRUE",
        "null",
        "~",
        "",
        "<<",
        "=",
        "-0",
        "08",
        "1e",
        "0o",
        " x ",
        "a: b",
        "#a",
        "- b",
    ),
    *(
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "`a",
        "|",
        ">",
        "?",
        "[",
        "{",
        '"',
        "'",
        "a\nb",
        "\ta",
        "\x85",
        "\u2028",
        "\ufeff",
        "1\n2",
        "\x7f",
        "😀",
    ),
)


@given(
    st.lists(st.one_of(st.text(max_size=8), st.sampled_from(DOUBTFUL), st.from_regex(r"[-+.0-9eExob_]{1,6}")))
)
@settings(max_examples=200)
def test_any_text_stays_text_for_the_parser_of_kubernetes(words: list[str]) -> None:
    item = {"words": words, "known": {f"-{word}": word for word in words}}
    assert go_yaml.load(one_to_yaml(item)) == item


def test_the_parser_of_kubernetes_takes_more_for_numbers_than_pythons() -> None:
    text = "[1e-3, y, 0o7, a, 1.5, -1e1, yes, n]"
    assert go_yaml.load(text) == [0.001, True, 7, "a", 1.5, -10.0, True, False]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
def test_kubectl_reads_what_we_mean(tmp_path: Path) -> None:
    """Without a server: it only adds a label to what it reads."""
    made = replace(request(env={f"A{n}": word for n, word in enumerate(DOUBTFUL)}), command=DOUBTFUL)
    objects = manifests(made)
    (tmp_path / "run.yaml").write_text(to_yaml(objects))
    words = ["kubectl", "label", "--local", "-f", str(tmp_path / "run.yaml"), "seen=yes", "-o", "json"]
    env = {**os.environ, "KUBECONFIG": os.devnull}
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=60, check=True)
    decoder, text = json.JSONDecoder(), done.stdout.strip()
    read: list[Any] = []
    while text:
        item, end = decoder.raw_decode(text)
        read += item["items"] if item["kind"] == "List" else [item]
        text = text[end:].strip()
    for item in read:
        del item["metadata"]["labels"]["seen"]
    assert read == list(objects)


def test_a_large_snapshot_takes_several_config_maps_of_one_folder() -> None:
    made = replace(request(code="snapshot"), code=b"x" * (2 * PART_BYTES + 1))
    objects = manifests(made)
    maps = [item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"]
    assert maps == ["train-code-0", "train-code-1", "train-code-2"]
    for item in objects:
        check(item, VERSIONS[0])
        assert problems(item) == []
    pods = objects[-1]["spec"]["template"]["spec"]
    (code,) = [volume for volume in pods["volumes"] if volume["name"] == "code"]
    assert [source["configMap"]["name"] for source in code["projected"]["sources"]] == maps
    assert restricted_problems(pods) == []


@pytest.mark.parametrize(("kind", "wrapped"), [("job", ["Service", "Job"]), ("jobset", ["JobSet"])])
def test_an_app_wrapper_holds_only_kinds_that_its_controller_may_make(kind: Kind, wrapped: list[str]) -> None:
    """By its Role: services, jobs, jobsets and others of pods, and neither Secrets nor ConfigMaps."""
    made = request(kind=kind, app_wrapper=True, code="snapshot")
    *beside, wrapper = manifests(replace(made, code=b"x" * (PART_BYTES + 1)))
    assert [item["kind"] for item in beside] == ["Secret", "ConfigMap", "ConfigMap"]
    assert wrapper["kind"] == "AppWrapper"
    assert [part["template"]["kind"] for part in wrapper["spec"]["components"]] == wrapped
    assert [part.get("podSets") is not None for part in wrapper["spec"]["components"]][-1]


def test_a_trainjob_asks_for_no_field_that_trainer_2_2_lacks_unless_it_must() -> None:
    def pods(grace_s: int) -> dict[str, Any]:
        spec = manifests(request(kind="trainjob", grace_s=grace_s))[-1]["spec"]
        (job,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        found: dict[str, Any] = job["template"]["spec"]["template"]["spec"]
        return found

    assert "terminationGracePeriodSeconds" not in pods(30)
    assert pods(60)["terminationGracePeriodSeconds"] == 60


def test_a_trainjob_with_many_arguments_keeps_to_the_lists_that_trainer_takes() -> None:
    made = replace(request(kind="trainjob"), command=tuple(map(str, range(200))))
    trainer = manifests(made)[-1]["spec"]["trainer"]
    assert [*trainer["command"], *trainer["args"]] == list(made.command)
    assert len(trainer["command"]) == 128
    assert "args" not in manifests(request(kind="trainjob"))[-1]["spec"]["trainer"]


def test_pods_of_the_nodes_network_keep_apart_whatever_their_labels_are() -> None:
    """Two of a run on one node would both listen on its port; a label may be one of ours with another value."""
    labels = {"app.kubernetes.io/component": "search"}
    template = manifests(request(host_network=True, pods=2, labels=labels))[-1]["spec"]["template"]
    (term,) = template["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert term["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()


def test_secret_values_stand_in_the_secret_alone() -> None:
    objects = manifests(request())
    assert [item["kind"] for item in objects if "hush" in str(item) or "knock" in str(item)] == ["Secret"]
    assert objects[0]["stringData"] == {"door": "knock", "env.HF_TOKEN": "hush"}


WORDS = ("$(HOME)", "$$(HOME)", "$$$(HOME)", "$HOME", "${HOME}", "kill $$", "$", "$(A B)", "5$", "$()$")


def test_kubernetes_puts_nothing_in_the_place_of_what_looks_like_a_variable() -> None:
    config = LaunchConfig(
        command=Command("command", "echo", WORDS),
        engine="kubernetes",
        kubernetes=KubernetesConfig(image=IMAGE, env={"WORDS": " ".join(WORDS)}),
    )
    pod = manifests(make_request(config, door_secret=""))[-1]["spec"]["template"]["spec"]["containers"][0]
    variables = {"HOME": "/root", "A": "b", "": "c", "A B": "d"}
    assert tuple(expanded(word, variables) for word in pod["command"][-len(WORDS) :]) == WORDS
    told = {variable["name"]: variable.get("value", "") for variable in pod["env"]}
    assert expanded(told["WORDS"], variables) == " ".join(WORDS)
    assert "$HOME" in pod["command"]  # what needs no change has none


@given(st.text(alphabet="$()AB ", max_size=12))
def test_any_dollars_stay_what_they_are(text: str) -> None:
    assert expanded(literal(text), {"A": "1", "B": "2", "": "3"}) == text


@given(
    script=st.text(min_size=1, max_size=100),
    kind=st.sampled_from(["job", "jobset", "trainjob"]),
    pods=st.integers(1, 65_536),
)
@settings(max_examples=200)
def test_names_are_labels_whatever_the_script_is_called(script: str, kind: Any, pods: int) -> None:
    names = pod_names(None, script, kind, pods)
    labels = [names.name, names.host(0), names.host(pods - 1)]
    if kind != "job":  # JobSet's webhook looks at the pods' whole names, too
        labels.append(f"{names.host(pods - 1)}-abcde")
    for label in labels:
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", label)
        assert len(label) <= LONGEST_LABEL
    assert names.leader == f"{names.host(0)}.{names.name}"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no image": ({"image": ""}, "must have an image"),
    "reserved variable": ({"env": {"PET_NNODES": "3"}}, "PET_NNODES"),
    "variable twice": ({"env": {"A": "1"}, "secrets": {"A": "b/c"}}, "in both"),
    "half a card": ({"resources": {"nvidia.com/gpu": "500m"}}, "whole number"),
    "less of a card": ({"resources": {"a/b": 2}, "requests": {"a/b": 1}}, "must equal its limit"),
    "more than the limit": ({"resources": {"cpu": 1}, "requests": {"cpu": 2}}, "exceed"),
    "shm beyond memory": ({"resources": {"memory": "1Gi"}}, "/dev/shm must fit"),
    "two sources": ({"volumes": (PodVolume(at="/a", claim="x", secret="y"),)}, "one source"),
    "no source": ({"volumes": (PodVolume(at="/a"),)}, "got none"),
    "folder taken": ({"volumes": (PodVolume(at="/dev/shm/", claim="x"),)}, "share a folder"),
    "node folder": ({"volumes": (PodVolume(at="/a", host_path="/b"),)}, "root: true"),
    "bad nfs": ({"volumes": (PodVolume(at="/a", nfs="files"),)}, "server:/path"),
    "root": ({"run_as_user": 0}, "must not be 0"),
    "networks of the host": ({"host_network": True, "networks": ("a",)}, "drop one"),
    "priority without queue": ({"queue_priority": "high"}, "must come with a queue"),
    "part of the pods": (
        {"queue": "a", "annotations": {"kueue.x-k8s.io/job-min-parallelism": "2"}},
        "must admit it as a whole",
    ),
    "topology without queue": ({"topology": PodTopology(required="rack")}, "must come with a queue"),
    "two topologies": (
        {"queue": "a", "topology": PodTopology(required="a", preferred="b")},
        "required or preferred",
    ),
    "elastic wrapper": ({"elastic": True, "app_wrapper": True, "queue": "a"}, "drop it"),
    "topology of what grows": (
        {"elastic": True, "queue": "a", "topology": PodTopology(required="rack")},
        "takes no wish for a topology",
    ),
    "trainjob's scheduler": ({"kind": "trainjob", "scheduler": "volcano"}, "ClusterTrainingRuntime"),
    "trainjob in a wrapper": ({"kind": "trainjob", "app_wrapper": True}, "knows TrainJobs"),
    "level of no label": (
        {"queue": "a", "topology": PodTopology(required="the rack")},
        "a label of nodes",
    ),
    "capability by the kernel's name": ({"capabilities": ("CAP_SYS_ADMIN",)}, "write SYS_ADMIN"),
    "seconds of a taint that ends nothing": (
        {"tolerations": (PodToleration(key="a", effect="NoSchedule", seconds=5),)},
        "effect: NoExecute",
    ),
    "a value of a taint that must but exist": (
        {"tolerations": (PodToleration(key="a", value="b"),)},
        "operator: Equal",
    ),
    "any taint that equals": (
        {"tolerations": (PodToleration(operator="Equal", value="b"),)},
        "must name a key",
    ),
    "a resource of no vendor": ({"resources": {"gpu": 1}}, "nvidia.com/gpu"),
    "a request of a card without a limit": ({"requests": {"nvidia.com/gpu": 1}}, "among resources"),
    "huge pages alone": ({"resources": {"hugepages-2Mi": "1Gi"}}, "cpu or memory"),
    "a folder above its volume": ({"volumes": (PodVolume(at="/a", claim="x", sub_path="../b"),)}, "sub_path"),
    "a label of the Job": ({"labels": {"batch.kubernetes.io/job-name": "x"}}, "Kubernetes itself"),
    "bad label": ({"labels": {"a b": "c"}}, "a b=c"),
    "name too long": ({"name": "a" * 63}, "at most 61"),
    "name of digits": ({"name": "1a"}, "small letter"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_with_a_sentence(name: str) -> None:
    fields, sentence = REFUSED[name]
    with pytest.raises(UsageError, match=re.escape(sentence)) as refused:
        request(**fields)
    assert ", got " in str(refused.value)
    assert ";" in str(refused.value)
