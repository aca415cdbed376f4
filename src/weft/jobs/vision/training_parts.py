"""Trainings of pictures in a job service in one place: data for jobs, models, projects, automatic labels."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import UsageError
from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.snapshot import CodeSnapshot, SnapshotFile
from weft.jobs.data.parts import DataParts
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.snapshots import add_snapshot
from weft.jobs.vision.autolabel import AutomaticLabels
from weft.jobs.vision.models import PictureModel, TrainedModels
from weft.jobs.vision.pictures import FILM, KIND, FrozenPictures, PictureData
from weft.jobs.vision.projects import find_project, may_deploy
from weft.jobs.vision.trainings import DOCUMENT, LABELLING, STOP_FILE, TAG, TRAINING

if TYPE_CHECKING:
    from weft.vision.library import Library


class TrainingParts:
    """Everything that a service does with trainings; what needs the library is made when it is first used."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        blobs: BlobStore,
        data: DataParts,
        library: Callable[[], Library],
    ) -> None:
        self._database, self._folder, self._blobs, self._data = database, folder, blobs, data
        self._library = library  # which is opened when it is first needed
        self.models = TrainedModels(database, data.models, folder / "models")

    @property
    def library(self) -> Library:
        return self._library()

    @cached_property
    def pictures(self) -> PictureData:
        return PictureData(self._database, self.library, self._folder / "exports")

    async def seen(
        self, found: Iterable[PictureModel], visible_to: int | None, user_name: str
    ) -> tuple[PictureModel, ...]:
        """Return those models that a user may see: all where `visible_to` is None.

        Else it is the number of the user, who sees the user's own and those of data sets that are shared.
        """
        if visible_to is None:
            return tuple(found)
        shared = await asyncio.to_thread(lambda: self.library.seen(user_name))
        return tuple(one for one in found if one.user_id == visible_to or one.dataset in shared)

    async def shows_pictures(self, dataset: str, user_name: str | None) -> bool:
        """Return whether a user may see the pictures of a data set; a user of None is an administrator."""
        return user_name is None or dataset in await asyncio.to_thread(lambda: self.library.seen(user_name))

    async def bring(self, job: StoredJob, spec: JobSpec, folder: Path) -> Mapping[str, str]:
        """Bring the data sets of pictures that a job reads."""
        if not any(place.startswith((KIND, FILM)) for place in spec.data.values()):
            return {}
        return await self.pictures.bring(job, spec, folder)

    async def carry(self, job: StoredJob, spec: JobSpec, folder: Path) -> None:
        """Take over what a completed training or labelling made."""
        kind = spec.tags.get(TAG)
        if kind == LABELLING:
            await AutomaticLabels(self._database, self.library).take(job, spec, folder)
        if kind == TRAINING:
            made = await self.models.keep(job, spec, folder)
            if made is not None:
                await self._serve_newest(job, made)

    async def _serve_newest(self, job: StoredJob, made: PictureModel) -> None:
        """Serve the newest model of a project that wants so."""
        if made.project_id is None:
            return
        number = made.project_id
        project = await self._database.read(lambda c: find_project(c, number))
        if project.auto_deploy and may_deploy(project, made):
            await self._data.deployments.deploy(
                made.model, made.reference, user_id=job.user_id, user_name=job.user_name
            )

    async def snapshot(
        self,
        document: Mapping[str, Any],
        model: PictureModel | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> str:
        """Keep a request, the files of a model, and others, as the code of a job; return its digest."""
        contents = {DOCUMENT: json.dumps(document).encode(), **(files or {})}
        if model is not None:
            contents |= self.model_files(model)
        kept = []
        for path, data in sorted(contents.items()):
            digest = hashlib.sha256(data).hexdigest()
            self._blobs.add(digest, data)
            kept.append(SnapshotFile(path, "file", digest, len(data)))
        made = CodeSnapshot(tuple(kept))
        return await self._database.write(lambda c: add_snapshot(c, made))

    def model_files(self, model: PictureModel) -> dict[str, bytes]:
        """Return the files that a prediction needs, with the graph that the model store has."""
        home = self.models.folder(model.model, model.version)
        names = ("results.json", "config.json", "card.json")
        found = {f"model/{name}": (home / name).read_bytes() for name in names if (home / name).is_file()}
        entry = self._data.models.find(model.reference)
        found[f"model/{entry.path.name}"] = entry.path.read_bytes()
        for record in entry.record.files[1:]:  # weights outside the graph, which names them
            found[f"model/{record.name}"] = (entry.path.parent / record.name).read_bytes()
        return found

    def unlabelled(self, data: FrozenPictures) -> tuple[str, ...]:
        """Return the files of a version that nobody has labelled, neither with shapes nor with a category. Blocks."""
        pictures = self.pictures.version(data).pictures
        return tuple(
            one.id
            for one in pictures
            if (one.category is None or one.category_confidence is not None)
            and all(shape.confidence is not None for shape in one.shapes)
        )

    def finish_early(self, folder: Path) -> None:
        """Tell a training to end after this epoch and keep its best state; `folder` is that of its attempt."""
        place = folder / "outputs" / "model"
        if not place.is_dir() or place.is_symlink():
            raise UsageError("a training must have begun to be finished early, got one that has not; stop it")
        (place / STOP_FILE).touch()
