"""A run on trial: a cluster judges its objects as if they were created, by all of its rules, and keeps none of them.

Rights alone do not tell that a kind is not installed, that a namespace is not there, what a quota has left, or what the
rules and webhooks of a cluster refuse.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec

from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.engines.kubernetes.api import ClusterApi, ClusterError
from weft.launch.engines.kubernetes.objects.manifests import manifests
from weft.launch.engines.kubernetes.objects.request import make_request
from weft.launch.engines.kubernetes.objects.yaml_text import one_to_yaml
from weft.launch.pod_settings import KubernetesConfig

Data = dict[str, Any]


def try_run(api: ClusterApi, settings: KubernetesConfig) -> Iterator[tuple[str, str]]:
    """Yield the kind of each object of a run, and why the cluster would refuse it; nothing where it would not."""
    named = msgspec.structs.replace(
        settings, name=f"weft-{secrets.token_hex(4)}", image=settings.image or "weft:trial", code="image"
    )
    config = LaunchConfig(command=Command("command", "true"), engine="kubernetes", kubernetes=named)
    for item in manifests(make_request(config, door_secret=secrets.token_hex())):
        try:
            api.request(
                "POST",
                api.path_of(item, named=False),
                params={"fieldManager": "weft", "fieldValidation": "Strict", "dryRun": "All"},
                content=one_to_yaml(item),
                content_type="application/yaml",
                doing=f"take a {item['kind']}",
            )
            yield item["kind"], ""
        except ClusterError as error:
            yield item["kind"], str(error)
