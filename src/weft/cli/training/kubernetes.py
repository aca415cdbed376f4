"""The options of `weft run --engine kubernetes`, and the settings they add up to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from weft.cli.hosts.options import F
from weft.cli.paths import ExistingFile
from weft.cli.values import COUNT, Text
from weft.errors import UsageError
from weft.launch.pod_settings import LABEL, QUANTITY, KubernetesConfig
from weft.text import shorten

_FLAGS = {
    "image": "--image",
    "pods": "--pods",
    "namespace": "--namespace",
    "context": "--context",
    "queue": "--queue",
    "name": "--name",
    "kind": "--as",
    "code": "--code",
}
_OPTIONS = (
    click.option(
        "--kubernetes",
        "settings_file",
        type=ExistingFile("a YAML file"),
        metavar="FILE",
        help="With --engine kubernetes: settings of its pods (see docs/reference/kubernetes.md).",
    ),
    click.option(
        "--image", type=Text("an image", "team/train:2"), metavar="IMAGE", help="The image of the pods."
    ),
    click.option("--pods", type=COUNT, metavar="N", help="Pods, each a host of the run."),
    click.option(
        "--resource",
        "resources",
        multiple=True,
        metavar="NAME=QUANTITY",
        help="Of each pod: cpu=8, memory=32Gi, nvidia.com/gpu=4; may be given again.",
    ),
    click.option(
        "--namespace", type=Text("a namespace", "training"), metavar="NAME", help="Where the pods run."
    ),
    click.option(
        "--context", type=Text("a context", "lab"), metavar="NAME", help="The context of the kubeconfig."
    ),
    click.option("--queue", type=Text("a queue", "research"), metavar="NAME", help="A queue of Kueue."),
    click.option("--name", type=Text("a name", "train"), metavar="NAME", help="The name of the objects."),
    click.option(
        "--as",
        "kind",
        type=click.Choice(["job", "jobset", "trainjob"]),
        help="The kind of object that makes the pods.",
    ),
    click.option(
        "--code",
        type=click.Choice(["image", "snapshot"]),
        help="Where the pods have the code from: their image, or a snapshot of this folder.",
    ),
    click.option("--detach", is_flag=True, help="Apply the objects and leave the run alone."),
)


def kubernetes_options(function: F) -> F:
    """Add the options of the engine kubernetes."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def kubernetes_config(options: dict[str, Any]) -> KubernetesConfig | None:
    """Return the settings behind the flags and the file; takes its flags, and those of an elastic run, out."""
    file: Path | None = options.pop("settings_file")
    resources: tuple[str, ...] = options.pop("resources")
    detach: bool = options.pop("detach")
    given = {field: options.pop(field) for field in _FLAGS}
    given = {field: value for field, value in given.items() if value is not None}
    if options["engine"] != "kubernetes":
        flags = [_FLAGS[field] for field in given]
        flags += [
            flag
            for flag, set_ in (("--kubernetes", file), ("--resource", resources), ("--detach", detach))
            if set_
        ]
        if flags:
            raise UsageError(
                f"{flags[0]} must come with --engine kubernetes, got {options['engine']}; add it"
            )
        return None
    from weft.documents import fill_model, parse_document

    _check_names(given)
    pods, options["nnodes"] = _pods_of_torchrun(options["nnodes"]), None
    if pods is not None and given.setdefault("pods", pods) != pods:
        raise UsageError(f"--nnodes must equal --pods, got {pods} and {given['pods']}; drop --nnodes")
    data = parse_document(file) if file is not None else {}
    place = file or Path("--engine kubernetes")
    if not isinstance(data, dict):
        raise UsageError(
            f"{place} must hold a mapping of settings, got {type(data).__name__}; write image: NAME"
        )
    if resources:
        given["resources"] = {**(data.get("resources") or {}), **dict(map(_resource, resources))}
    if detach:
        given["detach"] = True
    settings = fill_model({**data, **given}, KubernetesConfig, place)
    return _elastic_settings(settings, options, has_pods="pods" in {**data, **given})


def _check_names(given: dict[str, Any]) -> None:
    for field in ("namespace", "name"):
        if field in given and not re.fullmatch(LABEL, given[field]):
            raise UsageError(
                f"{_FLAGS[field]} must be small letters, digits and hyphens, at most 63, got {shorten(given[field])}; "
                f"write {_FLAGS[field]} train"
            )


def _pods_of_torchrun(nnodes: str | None) -> int | None:
    """Return the pods that torchrun's count of hosts stands for."""
    if nnodes is None:
        return None
    least, colon, most = nnodes.partition(":")
    if colon and least != most:
        raise UsageError(
            f"--nnodes must be the number of pods with --engine kubernetes, got {nnodes}; for a run that goes on with "
            f"fewer, write --elastic {nnodes}"
        )
    if not least.isdecimal() or int(least) < 1:
        raise UsageError(f"--nnodes must be a whole number of at least 1, got {nnodes}; write --nnodes 2")
    return int(least)


def _resource(text: str) -> tuple[str, str]:
    name, equals, quantity = text.partition("=")
    if not (name and equals and re.fullmatch(QUANTITY, quantity)):
        raise UsageError(
            f"--resource must look like cpu=8, memory=32Gi or nvidia.com/gpu=4, got {shorten(text)}; mend it"
        )
    return name, quantity


def _elastic_settings(
    settings: KubernetesConfig, options: dict[str, Any], *, has_pods: bool
) -> KubernetesConfig:
    """Return the settings of an elastic run, whose options are those of `weft run` in the pods.

    Takes the options of an elastic run out; folders are those of the pods.
    """
    import msgspec

    from weft.launch.engines.kubernetes.objects.request import accelerators_of

    limits = options.pop("elastic")
    given = {name: options.pop(name) for name in _ELASTIC}
    for name in ("discover", "bar_hosts", "witness"):
        if given[name] is not None:
            raise UsageError(
                f"--{name.replace('_', '-')} is for hosts that are named, got it with --engine kubernetes; drop it"
            )
    if limits is None:
        for name in ("checkpoint", "checkpoint_every"):
            if given[name] is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} must come with --elastic, got it alone; add --elastic MIN:MAX")
        return settings
    least, most = limits
    args = ["--elastic", f"{least}:{most}"]
    for name, value in given.items():
        if value is not None and value != _ELASTIC[name]:
            args += [f"--{name.replace('_', '-')}", f"{value}"]
    per_pod, pods = options["per_host"], settings.pods
    if not isinstance(per_pod, int) and options["workers"] is None:
        per_pod = accelerators_of(settings) or 1
    if isinstance(per_pod, int) and not has_pods:
        pods = -(-most // per_pod)
    elif isinstance(per_pod, int) and pods * per_pod < least:
        raise UsageError(
            f"the pods of an elastic run must hold its {least} workers, got {pods} with {per_pod} each; "
            f"use --pods {-(-least // per_pod)} or more"
        )
    return msgspec.structs.replace(settings, elastic=True, extra_args=tuple(args), pods=pods)


# The options of an elastic run, with the values that need not be written.
_ELASTIC: dict[str, Any] = {
    "detect_within": 2.0,
    "start_within": 30.0,
    "alone": 60.0,
    "slow": "report",
    "discover": None,
    "bar_hosts": None,
    "witness": None,
    "checkpoint": None,
    "checkpoint_every": None,
}
