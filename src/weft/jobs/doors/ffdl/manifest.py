"""FfDL's manifest: the fields of manifest.yml, read as FfDL reads them; unknown keys are ignored."""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field

from weft.documents import describe_mismatch, parse_yaml
from weft.errors import UsageError
from weft.text import format_size, parse_size

LARGEST_BYTES = 1 << 20
_MEMORY = re.compile(r"\s*\d+\s*[mg]i?b\s*", re.IGNORECASE | re.ASCII)


class ManifestError(UsageError):
    """A manifest that cannot be used."""


class Container(msgspec.Struct, frozen=True):
    """A bucket, or a folder of a volume."""

    container: str


class DataStore(msgspec.Struct, frozen=True):
    """The store of a training's data and results."""

    id: str = ""
    type: str = "mount_cos"
    training_data: Container | None = None
    training_results: Container | None = None
    connection: dict[str, Any] = field(default_factory=dict)


class Framework(msgspec.Struct, frozen=True):
    """The framework, as FfDL names its images, and the command of a learner."""

    name: str
    command: str
    version: str | int | float = ""
    image_tag: str | None = None


class EvaluationMetrics(msgspec.Struct, frozen=True):
    """The place and form of metrics that a training writes."""

    type: str
    in_: str = field(default="", name="in")
    line_lookahead: int = 4
    groups: dict[str, Any] = field(default_factory=dict)


class Manifest(msgspec.Struct, frozen=True):
    """One training."""

    name: str
    framework: Framework
    description: str = ""
    version: str | int | float = ""
    learners: Annotated[int, Meta(ge=1, le=65_536)] = 1
    gpus: Annotated[float, Meta(ge=0)] = 0.0
    cpus: Annotated[float, Meta(ge=0)] | None = None
    gpu_type: str | None = None
    memory: str | None = None
    storage: str | None = None
    data_stores: tuple[DataStore, ...] = ()
    evaluation_metrics: EvaluationMetrics | None = None

    @property
    def store(self) -> DataStore | None:
        return self.data_stores[0] if self.data_stores else None


def read_manifest(text: str | bytes) -> Manifest:
    """Return the manifest in a YAML text."""
    import yaml

    if len(text) > LARGEST_BYTES:
        raise ManifestError(
            f"a manifest must be at most {format_size(LARGEST_BYTES, trimmed=True)}, got {len(text)} bytes; "
            "keep data in files"
        )
    try:
        found = parse_yaml(text)
        manifest = msgspec.convert(found, Manifest)
    except msgspec.ValidationError as error:
        raise ManifestError(f"the manifest: {describe_mismatch(str(error), Manifest)}") from None
    except (yaml.YAMLError, ValueError, RecursionError, AttributeError, LookupError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ManifestError(f"a manifest must be YAML, got: {reason}; mend that line") from None
    if len(manifest.data_stores) > 1:
        raise ManifestError(f"a manifest must have one data store, got {len(manifest.data_stores)}; keep one")
    if not manifest.name.strip() or not manifest.framework.command.strip():
        raise ManifestError("a manifest must have a name and a command, got an empty one; write them")
    for name in ("memory", "storage"):
        parse_memory(getattr(manifest, name), name)
    return manifest


def parse_memory(text: str | None, what: str = "memory") -> int | None:
    """Return the bytes of `8Gb` or `512 MiB`; FfDL gave 512 MB where it could not read it, we refuse that."""
    if text is None:
        return None
    if not _MEMORY.fullmatch(text):
        raise ManifestError(
            f"{what} must be a whole number and MB, MiB, GB or GiB, got {text[:40]!r}; write 8GiB"
        )
    return parse_size(text, what, write="8GiB", error=ManifestError)
