"""The beginning of jobs about pictures: what is asked for becomes a document, a snapshot and a queued job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weft.jobs.spec.model import ExportSpec, JobSpec, ResourceSpec
from weft.jobs.vision.models import PictureModel
from weft.jobs.vision.pictures import FILM, FrozenPictures
from weft.jobs.vision.trainings import (
    CUSTOM_NETWORK,
    DOCUMENT,
    INFERENCE,
    MODEL_FOLDER,
    TAG,
    TRAINING,
    WORKER,
    TrainingRequest,
    check_config,
    task_and_network,
    training_document,
    training_spec,
)
from weft.jobs.vision.worker import CUSTOM

if TYPE_CHECKING:
    from weft.jobs.service.service import JobService
    from weft.vision.library.marks.actions import FilmAction


@dataclass(frozen=True)
class JobOwner:
    """The user whom a job is begun for."""

    user_id: int
    user_name: str


async def begin_training(
    service: JobService,
    owner: JobOwner,
    data: FrozenPictures,
    name: str,
    config: Mapping[str, Any],
    task: str | None,
    network: str | None,
    files: Mapping[str, bytes] | None = None,
    **more: Any,
) -> int:
    """Queue a training on a version of a data set and return its job; `more` are fields of a TrainingRequest.

    `files` lie beside the request, where the worker runs.
    """
    checked = check_config(config, task, network)
    task, network = task_and_network(checked, data)
    asked = TrainingRequest(
        data=data, name=name, task=task, network=network, config={**checked, "task": task}, **more
    )
    snapshot = await service.trainings.snapshot(training_document(asked), files=files)
    (number,) = await service.submit(
        training_spec(asked), user_id=owner.user_id, user_name=owner.user_name, snapshot=snapshot
    )
    return number


async def begin_custom(
    service: JobService,
    owner: JobOwner,
    data: FrozenPictures,
    name: str,
    archive: bytes,
    params: Mapping[str, Any],
    project_id: int | None = None,
) -> int:
    """Queue a training by a custom model's zip and return its job: its code runs as the job's, with its rights."""
    from weft.vision.custom.running import check_custom

    check_custom(archive)
    task = "classification" if data.categories else "detection"
    asked = TrainingRequest(data=data, name=name, task=task, network=CUSTOM_NETWORK, project_id=project_id)
    document = {**training_document(asked), "params": dict(params)}
    snapshot = await service.trainings.snapshot(document, files={CUSTOM: archive})
    (number,) = await service.submit(
        training_spec(asked), user_id=owner.user_id, user_name=owner.user_name, snapshot=snapshot
    )
    return number


@dataclass(frozen=True, kw_only=True)
class ActionsRequest:
    """A training on the actions that are marked in the films of a data set, as it is requested."""

    dataset: str  # its id
    dataset_name: str
    name: str  # of the model
    marks: Sequence[FilmAction]
    project_id: int | None = None


async def begin_actions(service: JobService, owner: JobOwner, asked: ActionsRequest) -> int:
    """Queue a training on marked actions and return its job."""
    films = {
        film: f"film{place}" for place, film in enumerate(dict.fromkeys(one.film for one in asked.marks))
    }
    marks = [
        {"film": films[one.film], "label": one.label, "start_s": one.start_s, "end_s": one.end_s}
        for one in asked.marks
    ]
    document = {"name": asked.name, "marks": marks, "version": {"name": asked.dataset_name, "number": 0}}
    tags = {
        TAG: TRAINING,
        "dataset": asked.dataset,
        "dataset_name": asked.dataset_name,
        "dataset_version": "0",
        "task": "action",
        "network": "efficientnet-lite0",
        "model": asked.name,
    }
    if asked.project_id is not None:
        tags["vision_project"] = str(asked.project_id)
    spec = JobSpec(
        run=("-m", WORKER, "actions", DOCUMENT),
        name=asked.name,
        project="vision",
        data={name: f"{FILM}{film}" for film, name in films.items()},
        tags=tags,
        export=ExportSpec(model=asked.name, path=f"{MODEL_FOLDER}/model.onnx"),
    )
    snapshot = await service.trainings.snapshot(document)
    (number,) = await service.submit(
        spec, user_id=owner.user_id, user_name=owner.user_name, snapshot=snapshot
    )
    return number


@dataclass(frozen=True, kw_only=True)
class FilmRequest:
    """An inference on a film as it is requested."""

    film: str  # id of its file
    name: str
    dataset: str
    model: PictureModel
    confidence: float
    every: int  # frames: the first of so many is looked at
    resources: ResourceSpec


def film_spec(asked: FilmRequest) -> JobSpec:
    """Return the job that writes a captioned film."""
    return JobSpec(
        run=("-m", WORKER, "film", DOCUMENT),
        name=f"film-{asked.model.model}"[:100],
        project="vision",
        resources=asked.resources,
        data={"pictures": f"{FILM}{asked.film}"},
        tags={
            TAG: INFERENCE,
            "dataset": asked.dataset,
            "film": asked.film,
            "film_name": asked.name[:200],
            "model": asked.model.reference,
        },
    )


async def begin_film(service: JobService, owner: JobOwner, asked: FilmRequest) -> int:
    """Queue an inference on a film and return its job."""
    document = {"model": asked.model.reference, "confidence": asked.confidence, "every": asked.every}
    snapshot = await service.trainings.snapshot(document, asked.model)
    (number,) = await service.submit(
        film_spec(asked), user_id=owner.user_id, user_name=owner.user_name, snapshot=snapshot
    )
    return number
