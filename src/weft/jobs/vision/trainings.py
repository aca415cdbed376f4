"""Trainings of pictures as jobs: what is asked for becomes a specification and a document for the job's worker."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.errors import UsageError
from weft.jobs.spec.model import ExportSpec, JobSpec, QueueSpec, ResourceSpec
from weft.jobs.store.jobs import StoredJob
from weft.jobs.vision.pictures import FrozenPictures

TAG = "vision"  # a tag of the jobs, whose values follow
TRAINING, LABELLING, INFERENCE = "training", "autolabel", "film"
DOCUMENT = "request.json"  # in the code of such a job
MODEL_FOLDER = "model"  # among the outputs of a training
STOP_FILE = "stop"  # in the model folder: a training that finds it ends and keeps the best state
WORKER = "weft.jobs.vision.worker"
CUSTOM_NETWORK = "custom"  # of a training by somebody's own train.py


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """A training as it is requested."""

    data: FrozenPictures
    name: str  # of the model
    task: str
    network: str
    config: Mapping[str, Any] = field(
        default_factory=dict
    )  # of weft.vision.config.VisionConfig, but for data
    workers: int | str = 1
    resources: ResourceSpec = field(default_factory=ResourceSpec)
    project: str = "vision"  # of the job
    project_id: int | None = None  # of models
    priority: int = 50


def training_document(asked: TrainingRequest) -> dict[str, Any]:
    """Return what the worker of a training reads."""
    version = {"name": asked.data.name, "number": asked.data.number, "digest": asked.data.digest}
    return {"config": {**asked.config, "name": asked.name}, "version": version, "dataset": asked.data.dataset}


def training_spec(asked: TrainingRequest) -> JobSpec:
    """Return the job of a training; its model goes into the store when it completes."""
    tags = {
        TAG: TRAINING,
        "dataset": asked.data.dataset,
        "dataset_name": asked.data.name,
        "dataset_version": str(asked.data.number),
        "task": asked.task,
        "network": asked.network,
        "model": asked.name,
    }
    if asked.project_id is not None:
        tags["vision_project"] = str(asked.project_id)
    own = asked.network == CUSTOM_NETWORK  # whose model is its code
    return JobSpec(
        run=("-m", WORKER, "custom" if own else "train", DOCUMENT),
        name=asked.name,
        project=asked.project,
        workers=asked.workers,
        resources=asked.resources,
        data={"pictures": asked.data.place},
        tags=tags,
        queue=QueueSpec(priority=asked.priority),
        export=ExportSpec(model=asked.name, path=f"{MODEL_FOLDER}/{'custom.zip' if own else 'model.onnx'}"),
    )


def check_config(config: Mapping[str, Any], task: str | None, network: str | None) -> dict[str, Any]:
    """Return a configuration with task and network in place, checked as the training will; UsageError names a field."""
    import msgspec

    from weft.documents import describe_mismatch
    from weft.vision.config.names import model_named
    from weft.vision.config.schema import VisionConfig

    given = {name: value for name, value in config.items() if name != "data"}
    if task is not None:
        given["task"] = task
    if network is not None:
        model = given.get("model")
        given["model"] = {**model, "name": network} if isinstance(model, Mapping) else {"name": network}
    try:
        checked = msgspec.convert(given, VisionConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"config: {describe_mismatch(str(error), VisionConfig)}") from None
    if checked.network.name is not None:
        model_named(checked.network.name)
    return given


def is_training(job: StoredJob) -> bool:
    return job.tags.get(TAG) == TRAINING


def task_and_network(config: Mapping[str, Any], data: FrozenPictures) -> tuple[str, str]:
    """Return the task of a training, as asked or as the labels allow, and the network that is trained."""
    import msgspec

    from weft.vision.config.names import model_named
    from weft.vision.config.reading import task_of
    from weft.vision.config.schema import VisionConfig
    from weft.vision.records import DatasetVersion

    checked = msgspec.convert(dict(config), VisionConfig)
    shown = DatasetVersion(
        name=data.name,
        number=data.number,
        digest=data.digest,
        pictures=(),
        labels=data.labels,
        categories=data.categories,
    )
    task = task_of(checked, shown)
    usual = "detector" if task in ("detection", "segmentation") else "efficientnet-lite0"
    return task, model_named(checked.network.name or usual)[0].name


def model_name(text: str) -> str:
    """Return a name of a data set in letters that the model store takes."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:100]
    return name or "pictures"
