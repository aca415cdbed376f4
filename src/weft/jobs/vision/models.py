"""Trained models of pictures: kept with their results when a training completes, and moved through a work flow.

The model itself is in the model store; its results, configuration, weights and examples are files below the service's
data folder, by name and version. A model is untested at first; people say that it is for production, or rejected.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import sqlalchemy as sa

from weft.errors import UsageError
from weft.files import write_whole
from weft.jobs.data.models import ModelShelf, models_of_job
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.events import add_event, now_ms
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.tables import user as user_table
from weft.jobs.store.vision_tables import vision_model
from weft.jobs.vision.trainings import CUSTOM_NETWORK, MODEL_FOLDER, TAG, TRAINING, model_name

if TYPE_CHECKING:
    from weft.vision.inference.predictor import ModelFolder

ProductionStatus = Literal["untested", "production", "rejected"]
STATUSES: tuple[str, ...] = get_args(ProductionStatus)
RESULTS, EXAMPLES = "results.json", "examples"
_KEPT = (RESULTS, "config.json", "weights.safetensors", "card.json")  # of a model folder, beside model.onnx
_MOST_EXAMPLES = 500
_LARGEST_RESULTS = 64 << 20  # bytes


class PictureModelNotFound(UsageError, LookupError):  # noqa: N818  (the name of the answer: 404)
    """A trained model that is not there."""


@dataclass(frozen=True, kw_only=True)
class PictureModel:
    """One version of a trained model."""

    model: str
    version: int
    job_id: int | None
    task: str
    dataset: str
    dataset_name: str
    dataset_version: int
    network: str
    score_name: str
    score: float | None
    status: str
    project_id: int | None
    user_id: int
    user_name: str
    created_ms: int
    changed_ms: int

    @property
    def reference(self) -> str:
        return f"{self.model}@{self.version}"


class TrainedModels:
    """The trained models of a service."""

    def __init__(self, database: Database, shelf: ModelShelf, folder: Path) -> None:
        self._database, self._shelf, self._folder = database, shelf, folder

    # -- coming in ----------------------------------------------------------------------------------------------------

    async def keep(self, job: StoredJob, spec: JobSpec, folder: Path) -> PictureModel | None:
        """Keep the results of a training that has completed, beside the model that the store has by now."""
        if spec.tags.get(TAG) != TRAINING:
            return None
        source = folder / "outputs" / MODEL_FOLDER
        references = await self._database.read(lambda c: models_of_job(c, job.id))
        if not references:
            return None
        name, _, number = references[-1].rpartition("@")
        results = await asyncio.to_thread(self._copy, source, self.folder(name, int(number)))
        await self._database.write(
            lambda c: _add(c, job.id, job.user_id, spec.tags, name, int(number), results)
        )
        return await self.find(references[-1])

    async def bring_in(self, archive: Path, user_id: int, name: str = "") -> PictureModel:
        """Take a model from a zip of `weft vision export`, or of another service, into the store."""
        with tempfile.TemporaryDirectory(prefix="weft-model-") as place:
            folder = Path(place)
            if await asyncio.to_thread(_is_custom, archive):
                return await self._bring_in_custom(archive, user_id, name)
            about = await asyncio.to_thread(_unpacked, archive, folder)
            named = model_name(name or about.name)
            entry = await asyncio.to_thread(self._shelf.store.push, folder / "model.onnx", named)
            results = await asyncio.to_thread(self._copy, folder, self.folder(entry.name, entry.version))
        given = results.get("data")
        data: dict[str, Any] = given if isinstance(given, dict) else {}
        tags = {
            "task": about.config.task or "",
            "network": about.config.network.name or "",
            "dataset_name": str(data.get("name", ""))[:100],
            "dataset_version": str(data["number"]) if isinstance(data.get("number"), int) else "0",
        }
        await self._database.write(lambda c: _add(c, None, user_id, tags, entry.name, entry.version, results))
        return await self.find(f"{entry.name}@{entry.version}")

    async def _bring_in_custom(self, archive: Path, user_id: int, name: str) -> PictureModel:
        """Take a packed custom model into the store; its code runs when a user deploys it."""
        entry = await asyncio.to_thread(self._shelf.store.push, archive, model_name(name or "custom"))
        card = entry.card
        task = "detection" if card.task == "detect" else "classification"
        results = {"task": task, "classes": list(card.labels)}
        home = self.folder(entry.name, entry.version)
        home.mkdir(0o700, parents=True, exist_ok=True)
        write_whole(home / RESULTS, json.dumps(results))
        tags = {"task": task, "network": CUSTOM_NETWORK}
        await self._database.write(lambda c: _add(c, None, user_id, tags, entry.name, entry.version, results))
        return await self.find(f"{entry.name}@{entry.version}")

    def _copy(self, source: Path, target: Path) -> dict[str, Any]:
        """Copy plain files of a model folder; return its results."""
        target.mkdir(0o700, parents=True, exist_ok=True)
        for path, place in _plain_files(source):
            (target / place).parent.mkdir(0o700, parents=True, exist_ok=True)
            shutil.copyfile(path, target / place, follow_symlinks=False)
        return read_results(target)

    def folder(self, model: str, version: int) -> Path:
        """Return where the files of a version are."""
        return self._folder / model / str(version)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def all(self, *, project_id: int | None = None) -> tuple[PictureModel, ...]:
        """Return all versions, newest first."""
        return await self._database.read(lambda c: _select(c, project_id=project_id))

    async def find(self, reference: str) -> PictureModel:
        """Return NAME@VERSION, or the newest version of NAME."""
        name, _, number = reference.rpartition("@") if "@" in reference else (reference, "", "")
        if number and (not number.isdecimal() or len(number) > 9):
            raise PictureModelNotFound(f"a trained model must be NAME@VERSION, got {reference[:100]!r}")
        version = int(number) if number else None
        found = await self._database.read(lambda c: _select(c, model=name, version=version))
        if not found:
            raise PictureModelNotFound(
                f"a trained model must be there, got {reference[:100]!r}; list them to see names"
            )
        return found[0]

    async def of_job(self, job_id: int) -> PictureModel | None:
        found = await self._database.read(lambda c: _select(c, job_id=job_id))
        return found[0] if found else None

    async def results(self, found: PictureModel) -> dict[str, Any]:
        """Return metrics, confusion, curves and mistakes of a model; nothing where its files are gone."""
        return await asyncio.to_thread(read_results, self.folder(found.model, found.version))

    async def examples(self, found: PictureModel) -> tuple[str, ...]:
        """Return the names of pictures that show what a model finds."""
        return await asyncio.to_thread(list_examples, self.folder(found.model, found.version))

    # -- changes ------------------------------------------------------------------------------------------------------

    async def change(
        self,
        found: PictureModel,
        *,
        status: str | None = None,
        project_id: int | None = None,
        leave: bool = False,
    ) -> PictureModel:
        """Say what a model is good for, or put it into a project; `leave` takes it out of its project."""
        values: dict[str, Any] = {"changed_ms": now_ms()}
        if status is not None:
            if status not in STATUSES:
                raise UsageError(f"status must be one of {', '.join(STATUSES)}, got {status[:40]!r}")
            values["status"] = status
        if project_id is not None or leave:
            values["project_id"] = None if leave else project_id

        def write(connection: sa.Connection) -> None:
            connection.execute(sa.update(vision_model).where(_is(found.model, found.version)).values(values))
            add_event(connection, "models", "changed", model=found.model, version=found.version)

        await self._database.write(write)
        return await self.find(found.reference)

    async def remove(self, found: PictureModel) -> None:
        """Remove a version from the store, with its results; one that an alias or a deployment names stays."""
        await asyncio.to_thread(self._shelf.store.rm, found.reference)
        await self._database.write(
            lambda c: c.execute(sa.delete(vision_model).where(_is(found.model, found.version)))
        )
        await asyncio.to_thread(shutil.rmtree, self.folder(found.model, found.version), ignore_errors=True)


def read_results(folder: Path) -> dict[str, Any]:
    """Return the results in a model folder; nothing where there are none."""
    try:
        path = folder / RESULTS
        if path.stat().st_size > _LARGEST_RESULTS:
            return {}
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def list_examples(folder: Path) -> tuple[str, ...]:
    """Return the names of the pictures among a model folder's examples, in their order."""
    home = folder / EXAMPLES
    if not home.is_dir() or home.is_symlink():
        return ()
    names = [one.name for one in os.scandir(home) if one.is_file(follow_symlinks=False)]
    return tuple(sorted(name for name in names if name.endswith((".jpg", ".png", ".json")))[:_MOST_EXAMPLES])


def _plain_files(source: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a model folder that are kept; links lead nowhere."""
    if source.is_symlink():
        return
    for name in _KEPT:
        if (source / name).is_file() and not (source / name).is_symlink():
            yield source / name, name
    for name in list_examples(source):
        yield source / EXAMPLES / name, f"{EXAMPLES}/{name}"


def _is(model: str, version: int) -> sa.ColumnElement[bool]:
    return (vision_model.c.model == model) & (vision_model.c.version == version)


def _is_custom(archive: Path) -> bool:
    from weft.vision.custom.running import is_packed

    return is_packed(archive)


def _unpacked(archive: Path, folder: Path) -> ModelFolder:
    """Unpack the zip of a model and return what it says of itself."""
    from weft.vision.export.ibm import read_zip

    about: ModelFolder = read_zip(archive, folder)
    if not (folder / "model.onnx").is_file():
        raise UsageError("a model must be a zip with model.onnx, got one without; export it with the graph")
    return about


def _add(
    connection: sa.Connection,
    job_id: int | None,
    user_id: int,
    tags: Mapping[str, str],
    model: str,
    version: int,
    results: dict[str, Any],
) -> None:
    if (
        connection.execute(sa.select(vision_model.c.version).where(_is(model, version))).one_or_none()
        is not None
    ):
        return  # its training was stored before, by a service that was killed then
    score = results.get("score")
    score = score if isinstance(score, dict) else {}
    value = score.get("value")
    project = tags.get("vision_project", "")
    row = {
        "model": model,
        "version": version,
        "job_id": job_id,
        "task": str(results.get("task") or tags.get("task", ""))[:30],
        "dataset": tags.get("dataset", ""),
        "dataset_name": tags.get("dataset_name", ""),
        "dataset_version": int(tags.get("dataset_version", "0")),
        "network": tags.get("network", ""),
        "score_name": str(score.get("name", ""))[:50],
        "score": float(value) if isinstance(value, (int, float)) else None,
        "status": "untested",
        "project_id": int(project) if project.isdecimal() else None,
        "user_id": user_id,
        "created_ms": now_ms(),
        "changed_ms": now_ms(),
    }
    connection.execute(sa.insert(vision_model), row)
    kind = "trained" if job_id is not None else "added"
    add_event(connection, "models", kind, model=model, version=version, job=job_id)


def _select(
    connection: sa.Connection,
    *,
    model: str | None = None,
    version: int | None = None,
    job_id: int | None = None,
    project_id: int | None = None,
) -> tuple[PictureModel, ...]:
    found = sa.select(vision_model, user_table.c.name.label("user_name")).join(
        user_table, user_table.c.id == vision_model.c.user_id
    )
    for column, wanted in (
        (vision_model.c.model, model),
        (vision_model.c.version, version),
        (vision_model.c.job_id, job_id),
        (vision_model.c.project_id, project_id),
    ):
        if wanted is not None:
            found = found.where(column == wanted)
    rows: Sequence[Any] = connection.execute(
        found.order_by(vision_model.c.created_ms.desc(), vision_model.c.version.desc())
    ).all()
    return tuple(PictureModel(**row._mapping) for row in rows)
