"""Answers of the made-up service about trainings of pictures, trained models and predictions."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from testing.console import vision_world as made
from testing.console.world import World, now_ms

from weft.jobs.api.types import data, trainings
from weft.jobs.api.types.jobs import JobView

CLASSES = tuple(name for name, _ in made.LABELS)
SERVED = "cells"


def _running(world: World) -> int | None:
    return next((job for job, found in world.jobs.items() if found["state"] == "running"), None)


def _results() -> dict[str, Any]:
    """Return results in the shape of a model folder's results.json."""
    recalls = [step / 20 for step in range(21)]
    curves = [
        {
            "label": name, "average_precision": 0.95 - 0.07 * place, "recall": recalls,
            "precision": [1 - (0.1 + 0.1 * place) * recall**3 for recall in recalls],
            "confidence": [1 - recall for recall in recalls],
        }
        for place, name in enumerate(CLASSES)
    ]  # fmt: skip
    sweep = [
        {"threshold": step / 20, "precision": 0.6 + step / 60, "recall": 0.98 - step / 40, "f1": 0.8}
        for step in range(1, 20)
    ]
    classes = [
        {"label": name, "objects": 900 // (place + 1), "map50": 0.95 - 0.07 * place, "map50_95": 0.66 - 0.1 * place,
         "precision": 0.93, "recall": 0.91 - 0.05 * place}
        for place, name in enumerate(CLASSES)
    ]  # fmt: skip
    worst = [
        {"picture": f"cells-{number}", "missed": 3 - number // 6, "invented": 1, "confused": number % 2}
        for number in range(0, 18, 3)
    ]
    counts = [[840, 4, 2, 31], [3, 203, 0, 5], [6, 1, 171, 24], [38, 2, 17, 0]]
    return {
        "task": "detection", "score": {"name": "map50", "value": 0.912}, "classes": list(CLASSES),
        "metrics": {"map50": 0.912, "map50_95": 0.604},
        "results": {"threshold": 0.4, "classes": classes, "curves": curves, "sweep": sweep, "worst": worst,
                    "confusion": {"labels": [*CLASSES, "(nothing)"], "counts": counts}},
    }  # fmt: skip


def _training(world: World, job: int) -> dict[str, Any]:
    done = world.jobs[job]["state"] == "completed"
    return {
        "job": world.view(job), "dataset": "cells", "dataset_name": "cells", "version": 2, "task": "detection",
        "network": "detector", "model": "cells@2" if done else None, "score_name": "map50",
        "score": 0.912 if done else None,
    }  # fmt: skip


def list_trainings(world: World, request: Request) -> trainings.TrainingsAnswer:
    jobs = [job for job, found in world.jobs.items() if found["state"] in ("running", "completed")]
    return trainings.TrainingsAnswer(
        tuple(trainings.TrainingView(**_training(world, job)) for job in jobs[-4:])
    )


async def begin_training(world: World, request: Request) -> trainings.TrainingView:
    asked = msgspec.json.decode(await request.body(), type=trainings.NewTraining)
    job = _running(world)
    if asked.task == "anomaly" or job is None:
        raise HTTPException(422, "an anomaly model must have pictures of category good, got none; label some")
    return trainings.TrainingView(**_training(world, job))


def show_training(world: World, request: Request) -> trainings.TrainingDetail:
    job = request.path_params["job"]
    if job not in world.jobs:
        raise HTTPException(404, f"there is no training {job}")
    done = world.jobs[job]["state"] == "completed"
    url = f"/api/v1/vision/trainings/{job}/examples"
    examples = (trainings.TrainingExample("examples.json", f"{url}/examples.json"),)
    return trainings.TrainingDetail(
        **_training(world, job), config={}, examples=examples, results=_results() if done else {}
    )


def read_training_example(world: World, request: Request) -> Response:
    """What a model finds in six pictures, as a training writes it."""
    if request.query_params or request.path_params["name"] != "examples.json":
        raise HTTPException(422, "an example must be one of the training's, got another")
    pictures = [
        {"picture": f"cells-{number}", "name": f"BloodImage_{number:05d}.jpg", "detections": [
            {"label": one["label"], "confidence": 0.9, "box": one["box"]} for one in made.cells(number)
        ]}
        for number in range(6)
    ]  # fmt: skip
    return JSONResponse({"score": 0.9, "pictures": pictures})


read_model_example = read_training_example


def finish_training(world: World, request: Request) -> JobView:
    world.jobs[request.path_params["job"]].update(state="completed", ended_ms=now_ms(), workers=0)
    return world.view(request.path_params["job"])


def _model(world: World, version: int) -> dict[str, Any]:
    return {
        "model": "cells", "version": version, "reference": f"cells@{version}", "job": next(iter(world.jobs)),
        "task": "detection", "network": "detector", "dataset": "cells", "dataset_name": "cells",
        "dataset_version": version, "score_name": "map50", "score": 0.8 + 0.056 * version,
        "status": "production" if version == 1 else world.vision.status, "project": None, "user": "mara", "mine": True,
        "deployments": (SERVED,) if version == 2 and world.vision.served else (),
        "created_ms": now_ms() - 9_000_000, "changed_ms": now_ms() - 600_000,
    }  # fmt: skip


def list_trained_models(world: World, request: Request) -> trainings.PictureModelsAnswer:
    models = (
        [trainings.PictureModelView(**_model(world, version)) for version in (2, 1)] if world.jobs else []
    )
    status = request.query_params.get("status")
    return trainings.PictureModelsAnswer(tuple(one for one in models if status in (None, one.status)))


def show_trained_model(world: World, request: Request) -> trainings.PictureModelDetail:
    version = int(request.path_params["model"].partition("@")[2] or 2)
    url = f"/api/v1/vision/models/cells@{version}/examples"
    examples = (trainings.TrainingExample("examples.json", f"{url}/examples.json"),)
    return trainings.PictureModelDetail(
        **_model(world, version), results=_results(), examples=examples, classes=CLASSES
    )


async def change_trained_model(world: World, request: Request) -> trainings.PictureModelView:
    world.vision.status = (await request.json()).get("status", world.vision.status)
    return trainings.PictureModelView(**_model(world, 2))


def deploy_trained_model(world: World, request: Request) -> data.DeploymentView:
    world.vision.served = True
    return data.DeploymentView(
        name=SERVED, model="cells", version=2, previous=(), state="running", message=None,
        url="http://127.0.0.1:9301", user="mara", created_ms=now_ms(), changed_ms=now_ms(), mine=True,
    )  # fmt: skip


def list_picture_projects(world: World, request: Request) -> trainings.PictureProjectsAnswer:
    project = trainings.PictureProjectView(
        id=1, name="haematology", description="", enforce=False, auto_deploy=False, datasets=("cells",), models=2,
        user="mara", mine=True, created_ms=now_ms(), changed_ms=now_ms(),
    )  # fmt: skip
    return trainings.PictureProjectsAnswer((project,) if world.jobs else ())


async def predict_picture(world: World, request: Request) -> trainings.PredictAnswer:
    if not (await request.body()).startswith((b"\xff\xd8", b"\x89PNG")):
        raise HTTPException(422, "a picture must be JPEG or PNG, got something else")
    found = tuple(
        trainings.PredictedBox(
            label=one["label"], confidence=0.95 - 0.1 * place, xmin=x0, ymin=y0, xmax=x1, ymax=y1
        )
        for place, one in enumerate(made.cells(3))
        for x0, y0, x1, y1 in [one["box"]]
    )
    return trainings.PredictAnswer(detections=found)
