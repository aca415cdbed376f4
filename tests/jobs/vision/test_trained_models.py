"""Trained models and projects in the store: kept with their results, moved through a work flow."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.data.models import ModelShelf
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import resolve
from weft.jobs.store import tables
from weft.jobs.store.data_tables import model_origin
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob, need_job, submit_job
from weft.jobs.vision import projects
from weft.jobs.vision.models import PictureModel, PictureModelNotFound, TrainedModels, list_examples
from weft.jobs.vision.pictures import FrozenPictures
from weft.jobs.vision.trainings import TrainingRequest, model_name, training_document, training_spec

pytestmark = pytest.mark.xdist_group("databases")
DATA = FrozenPictures("abc", "Flowers", 3, "d" * 64, ("rose",), ("red", "blue"), 12)
RESULTS: dict[str, Any] = {
    "task": "classification",
    "score": {"name": "accuracy", "value": 0.75},
    "classes": ["red", "blue"],
}


def asked(**more: Any) -> TrainingRequest:
    return TrainingRequest(data=DATA, name="flowers", task="classification", network="resnet-18", **more)


def trained(database: Database, folder: Path, version: int = 1, **more: Any) -> StoredJob:
    """Return a job that has trained a model, whose folder is below `folder`."""

    def write(connection: sa.Connection) -> StoredJob:
        if connection.scalar(sa.select(tables.user.c.id)) is None:
            connection.execute(sa.insert(tables.user).values(id=1, name="ann", role="member", created_ms=0))
        number = submit_job(connection, resolve(training_spec(asked(**more))), user_id=1, user_name="ann")
        row = {"model": "flowers", "version": version, "job_id": number, "path": "", "sha256": "0" * 64,
               "lineage": "{}", "user_id": 1, "created_ms": 0}  # fmt: skip
        connection.execute(sa.insert(model_origin), row)
        return need_job(connection, number)

    home = folder / "outputs" / "model"
    (home / "examples").mkdir(parents=True)
    (home / "results.json").write_text(json.dumps(RESULTS))
    (home / "examples" / "1.jpg").write_bytes(b"jpeg")
    return database.submit(write).result()


def shelf(database: Database, folder: Path) -> TrainedModels:
    return TrainedModels(database, ModelShelf(database, folder / "store"), folder / "models")


def test_a_training_is_a_job_that_exports_its_model() -> None:
    spec = training_spec(asked(workers="1:4", project_id=7))
    assert spec.data == {"pictures": "pictures:abc@3"}
    assert spec.export is not None
    assert (spec.export.model, spec.export.path) == ("flowers", "model/model.onnx")
    assert spec.tags["vision_project"] == "7"
    assert resolve(spec).command.target == "weft.jobs.vision.worker"
    document = training_document(asked(config={"batch": 8}))
    assert document["config"] == {"batch": 8, "name": "flowers"}
    assert document["version"] == {"name": "Flowers", "number": 3, "digest": "d" * 64}


@pytest.mark.parametrize(
    ("text", "name"), [("Flowers", "Flowers"), ("Blüten & Blätter", "Bl-ten-Bl-tter"), ("???", "pictures")]
)
def test_models_are_named_after_data_sets(text: str, name: str) -> None:
    assert model_name(text) == name


def test_results_are_kept_when_a_training_completes(database: Database, tmp_path: Path) -> None:
    models, job = shelf(database, tmp_path), trained(database, tmp_path / "attempt")
    made = asyncio.run(models.keep(job, training_spec(asked()), tmp_path / "attempt"))
    assert made is not None
    assert (made.reference, made.score, made.status, made.dataset_version) == (
        "flowers@1",
        0.75,
        "untested",
        3,
    )
    assert (
        asyncio.run(models.keep(job, training_spec(asked()), tmp_path / "attempt")) == made
    )  # once more, after a kill
    assert asyncio.run(models.results(made)) == RESULTS
    assert asyncio.run(models.examples(made)) == ("1.jpg",)
    changed = asyncio.run(models.change(made, status="production"))
    assert changed.status == "production"
    with pytest.raises(UsageError, match="status must be one of untested, production, rejected"):
        asyncio.run(models.change(made, status="good"))
    with pytest.raises(PictureModelNotFound):
        asyncio.run(models.find("flowers@2"))


def test_a_job_of_another_kind_leaves_no_model(database: Database, tmp_path: Path) -> None:
    job = trained(database, tmp_path / "attempt")
    assert asyncio.run(shelf(database, tmp_path).keep(job, JobSpec("x.py"), tmp_path / "attempt")) is None


def test_links_in_a_model_folder_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "leak.jpg").symlink_to("/etc/passwd")
    assert list_examples(tmp_path) == ()


def test_projects_choose_and_hold_back_models(database: Database, tmp_path: Path) -> None:
    models = shelf(database, tmp_path)
    trained(database, tmp_path / "first")
    made = database.submit(lambda c: projects.add_project(c, "Garden", 1, enforce=True)).result()
    with pytest.raises(UsageError, match="must be new, got 'Garden'"):
        database.submit(lambda c: projects.add_project(c, "Garden", 1)).result()
    job = trained(database, tmp_path / "second", 2, project_id=made.id)
    model = asyncio.run(models.keep(job, training_spec(asked(project_id=made.id)), tmp_path / "second"))
    assert model is not None
    assert model.project_id == made.id
    assert not projects.may_deploy(made, model)
    known = asyncio.run(models.all(project_id=made.id))
    assert projects.choose_model(known, "latest") == projects.choose_model(known, "untested") == model
    with pytest.raises(PictureModelNotFound, match="got 'production' and none"):
        projects.choose_model(known, "production")
    ready: PictureModel = asyncio.run(models.change(model, status="production"))
    assert projects.may_deploy(made, ready)
    database.submit(lambda c: projects.remove_project(c, made.id)).result()
    assert asyncio.run(models.find("flowers@2")).project_id is None  # the model stays
