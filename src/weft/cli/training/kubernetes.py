"""The options of `weft run --engine kubernetes`, and the settings they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from weft.cli.hosts.options import F
from weft.cli.values import COUNT, ExistingFile, Text
from weft.errors import UsageError
from weft.launch.pod_settings import KubernetesConfig
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
    """Return the settings behind the flags and the file; takes its flags out of the options."""
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
    return fill_model({**data, **given}, KubernetesConfig, place)


def _resource(text: str) -> tuple[str, str]:
    name, equals, quantity = text.partition("=")
    if not (name and equals and quantity):
        raise UsageError(f"--resource must look like cpu=8 or nvidia.com/gpu=4, got {shorten(text)}; mend it")
    return name, quantity


def elastic_settings(settings: KubernetesConfig, options: dict[str, Any]) -> KubernetesConfig:
    """Return the settings of an elastic run, whose options are those of `weft run` in the pods.

    Takes the options of an elastic run out; folders are those of the pods.
    """
    import msgspec

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
    return msgspec.structs.replace(settings, elastic=True, extra_args=tuple(args))


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
