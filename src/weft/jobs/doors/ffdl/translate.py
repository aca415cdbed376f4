"""From FfDL's manifest to a job specification; what cannot be kept is a warning. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import msgspec

from weft.jobs.doors.ffdl.manifest import DataStore, EvaluationMetrics, Manifest, ManifestError, parse_memory
from weft.jobs.doors.ffdl.patterns import PatternError, translate_group
from weft.jobs.spec.model import (
    JobSpec,
    JsonLinesSource,
    MetricSource,
    RegexSource,
    ResourceSpec,
    TensorboardSource,
)

LEARNER = "weft.jobs.doors.ffdl.learner"  # the module that each worker runs
STATE_FOLDER = ".job"  # JOB_STATE_DIR within the code, FfDL's /job
EMETRICS = f"{STATE_FOLDER}/logs/evaluation-metrics.txt"
DOOR = "ffdl"
TRAINING = "training-"  # begins the ids of trainings
_WEFT_FRAMEWORKS = ("pytorch", "horovod", "custom")


@dataclass(frozen=True)
class Translation:
    """A manifest as a job, with what was lost, and secrets that must not be in a specification."""

    spec: JobSpec
    warnings: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)  # name: value, for the store of secrets


def translate(manifest: Manifest, places: Sequence[str] = ()) -> Translation:
    """Return the job that carries a manifest out; `places` are lines of its code that name /job."""
    command = " ".join(manifest.framework.command.split("\n"))
    places = [*hard_coded_places([("the command.sh", command.encode())]), *places]
    warnings = [
        f"{line}: names /job, which learners see where the host allows it; use $JOB_STATE_DIR"
        for line in places
    ]
    placed = ("--with-job-folder",) if places else ()
    data, outputs, env, secrets = _stores(manifest.store, warnings)
    cpus = manifest.cpus
    if cpus is None:
        warnings.append("cpus is absent: FfDL gave a learner 5, weft gives 1; write cpus: 5 if it needs them")
    _frameworks(manifest, warnings)
    memory = parse_memory(manifest.memory)
    spec = JobSpec(
        run=("-m", LEARNER, *placed, "--gpus", f"{manifest.gpus:f}", "--", command),
        name=_name(manifest.name),
        project=DOOR,
        description=manifest.description[:10_000],
        workers=manifest.learners,
        resources=ResourceSpec(
            gpus=manifest.gpus,
            cpus=1.0 if cpus is None else cpus,
            memory=memory,
            hosts=(manifest.gpu_type,) if manifest.gpu_type and manifest.gpus else (),
        ),
        data=data,
        outputs=outputs,
        env=env,
        tags={"door": DOOR},
        metrics=_sources(manifest.evaluation_metrics, warnings),
    )
    return Translation(spec, tuple(warnings), secrets)


def _name(text: str) -> str:
    """Return a name with the signs that a job's name may have."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return plain[:100] or "training"


def _frameworks(manifest: Manifest, warnings: list[str]) -> None:
    framework = manifest.framework
    image = framework.image_tag or (str(framework.version) if framework.name == "custom" else None)
    if image:
        warnings.append(
            f"the image {image} is not used: learners run in the Python environment of weft's hosts"
        )
    elif framework.name.lower() not in _WEFT_FRAMEWORKS or framework.version:
        shown = f"{framework.name} {framework.version}".strip()
        warnings.append(f"{shown} must be installed on weft's hosts: there is no image for it")
    if manifest.storage:
        warnings.append(f"storage: {manifest.storage} is not reserved: a job uses the disk of its hosts")


def _stores(
    store: DataStore | None, warnings: list[str]
) -> tuple[dict[str, str], dict[str, str], dict[str, str | int | float | bool], dict[str, str]]:
    """Return data, outputs, variables and secrets of a data store."""
    if store is None:
        return {}, {}, {}, {}
    data, results = store.training_data, store.training_results
    if store.type == "mount_volume":
        base = _volume(store)
        env: dict[str, str | int | float | bool] = {}
        if results is not None:
            env["FFDL_RESULT_BUCKET"] = str(base / _inside(results.container))
        return ({"training": str(base / _inside(data.container))} if data else {}), {}, env, {}
    if store.type not in (
        "mount_cos",
        "s3_datastore",
        "bluemix_objectstore",
        "softlayer_objectstore",
        "object_storage",
    ):
        warnings.append(f"data_stores[0].type {store.type} is taken for S3")
    connection = {name: str(value) for name, value in store.connection.items()}
    name, secrets = _connection(connection)
    prefix = f"s3://{name}@" if name else "s3://"
    outputs = {"results": f"{prefix}{_bucket(results.container)}/{TRAINING}{{job}}"} if results else {}
    return ({"training": prefix + _bucket(data.container)} if data else {}), outputs, {}, secrets


def _volume(store: DataStore) -> PurePosixPath:
    given = store.connection
    if given.get("type", "host_mount") != "host_mount":
        raise ManifestError(
            f"a volume must be a host_mount, got {given.get('type')!r}; name a path of the hosts"
        )
    path = PurePosixPath(str(given.get("path", "")))
    if not path.is_absolute() or ".." in path.parts:
        raise ManifestError(
            f"connection.path must be an absolute path, got {str(path)!r}; name a folder of the hosts"
        )
    return path


def _inside(container: str) -> PurePosixPath:
    path = PurePosixPath(container)
    if path.is_absolute() or ".." in path.parts:
        raise ManifestError(
            f"a container must be a folder of the volume, got {container!r}; name one below it"
        )
    return path


def _bucket(container: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{1,62}(/[^\s/@?#]+)*", container):
        raise ManifestError(f"a container must be the name of a bucket, got {container[:80]!r}; name one")
    return container


def _connection(given: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the name of an S3 connection and its secret; none where the manifest has no credentials."""
    value = {
        "endpoint": given.get("auth_url", ""),
        "key": given.get("user_name", ""),
        "secret": given.get("password", ""),
        "region": given.get("region", ""),
    }
    if not any(value.values()):
        return "", {}
    text = msgspec.json.encode(value, order="sorted").decode()
    name = "ffdl" + hashlib.sha256(text.encode()).hexdigest()[:12]
    return name, {f"S3_{name.upper()}": text}


def _sources(given: EvaluationMetrics | None, warnings: list[str]) -> tuple[MetricSource, ...]:
    """Return where a training writes its metrics; FfDL's file of them is read in any case."""
    emetrics = JsonLinesSource(path=EMETRICS)
    if given is None:
        return (emetrics,)
    if given.type in ("tensorboard", "tensorboard_extractor"):
        return (TensorboardSource(folder=_place(given.in_ or "$JOB_STATE_DIR/logs/tb")), emetrics)
    if given.type in ("emetrics_file", "emetrics_file_extractor"):
        place = _place(given.in_) if given.in_ else EMETRICS
        return (emetrics,) if place == EMETRICS else (JsonLinesSource(path=place), emetrics)
    if given.type == "regex_extractor":
        return (*_patterns(given, warnings), emetrics)
    warnings.append(f"evaluation_metrics.type {given.type} is not known: its metrics are not read")
    return (emetrics,)


def _patterns(given: EvaluationMetrics, warnings: list[str]) -> list[MetricSource]:
    found: list[MetricSource] = []
    for label, group in given.groups.items():
        try:
            prefix = re.sub(r"[^A-Za-z0-9._-]", "_", label)[:100]
            found.append(RegexSource(pattern=translate_group(label, group), prefix=prefix))
        except PatternError as error:
            warnings.append(f"evaluation_metrics: {error}; its metrics are not read")
    return found


def _place(path: str) -> str:
    """Return a path of FfDL's folders as one of the job's folder."""
    for name, place in (
        ("JOB_STATE_DIR", STATE_FOLDER),
        ("LOG_DIR", f"{STATE_FOLDER}/logs"),
        ("MODEL_DIR", "."),
    ):
        path = re.sub(rf"\$(?:{name}\b|\{{{name}\}})", place, path)
    return re.sub(r"^/job(?=/|$)", STATE_FOLDER, path)


def hard_coded_places(files: Sequence[tuple[str, bytes]]) -> tuple[str, ...]:
    """Return the lines of scripts that name FfDL's folder /job, which is ours only where a mount is allowed."""
    found = []
    for path, data in files:
        if not path.endswith((".py", ".sh", ".yml", ".yaml", ".json")) or b"/job" not in data:
            continue
        for number, line in enumerate(data.decode(errors="replace").splitlines(), 1):
            if re.search(r"(?<![\w/.$}])/job(?=[/'\"\s]|$)|file:///job\b", line):
                found.append(f"{path}:{number}: {line.strip()[:120]}")
    return tuple(found)


def masked(manifest: Manifest) -> dict[str, Any]:
    """Return a manifest without its passwords, to be shown."""
    found: dict[str, Any] = msgspec.to_builtins(manifest)
    for store in found["data_stores"]:
        store["connection"] = {
            name: "****" if any(word in name.lower() for word in ("password", "secret", "token")) else value
            for name, value in store["connection"].items()
        }
    return found
