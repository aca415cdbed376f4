"""Data sets of pictures as data of jobs: `data: {pictures: "pictures:flowers@3"}` is a folder that any job can read.

A version is written out once, in COCO's format, below the service's data folder; it never changes, so jobs share it.
Hosts that do not share the folder have it carried to them, as other data that the service fetched.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.data.datasets import record_input
from weft.jobs.data.staging import variable_of
from weft.jobs.spec.model import JobSpec
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob
from weft.jobs.store.tables import user as user_table

if TYPE_CHECKING:
    from weft.vision.library import Library
    from weft.vision.records import DatasetVersion

KIND = "pictures:"
FILM = "film:"  # and the id of its file: a folder with the film alone
_PLACE = re.compile(r"pictures:([^@]{1,64})@(\d{1,9})")


@dataclass(frozen=True)
class FrozenPictures:
    """A version of a data set of pictures that jobs may read."""

    dataset: str  # its id
    name: str
    number: int
    digest: str
    labels: tuple[str, ...]
    categories: tuple[str, ...]
    pictures: int

    @property
    def place(self) -> str:
        """The version as a specification names it."""
        return f"{KIND}{self.dataset}@{self.number}"


class PictureData:
    """Versions of the service's library of pictures, for jobs."""

    def __init__(self, database: Database, library: Library, folder: Path) -> None:
        self._database, self._library, self._folder = database, library, folder
        self._writing: dict[tuple[str, int], asyncio.Lock] = {}

    async def frozen(self, reference: str, number: int | None, user: str | None) -> FrozenPictures:
        """Return a version that a user may see; without a number, one of the data set as it is now."""
        return await asyncio.to_thread(self._frozen, reference, number, user)

    def _frozen(self, reference: str, number: int | None, user: str | None) -> FrozenPictures:
        dataset = self._library.dataset(reference, user)
        if number is None:
            number = self._library.freeze(dataset.id, user=user).number
        found = next((one for one in self._library.versions(dataset.id, user) if one.number == number), None)
        if found is None:
            raise UsageError(f"the version of {dataset.name} must be one that was frozen, got {number}")
        return FrozenPictures(
            dataset.id, dataset.name, number, found.digest, found.labels, found.categories, found.pictures
        )

    async def bring(self, job: StoredJob, spec: JobSpec, folder: Path) -> Mapping[str, str]:
        """Return the folders of a job's data sets of pictures, by variable."""
        found = {}
        for name, place in spec.data.items():
            if place.startswith(FILM):
                user = await self._seen_as(job)
                found[variable_of(name)] = str(
                    await asyncio.to_thread(self._film, place.removeprefix(FILM), user)
                )
            if not place.startswith(KIND):
                continue
            match = _PLACE.fullmatch(place)
            if match is None:
                raise UsageError(f"data.{name} must be pictures:NAME@VERSION, got {place[:100]!r}")
            user = await self._seen_as(job)
            frozen = await self.frozen(match[1], int(match[2]), user)
            found[variable_of(name)] = str(await self.written(frozen))
            await self._note(job, name, frozen)
        return found

    def _film(self, file_id: str, user: str | None) -> Path:
        """Return the folder with a film that a user may see."""
        path, _ = self._library.picture_path(file_id, user)
        folder = self._folder / "films" / path.stem
        if not folder.exists():
            folder.parent.mkdir(0o711, parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(dir=folder.parent))
            try:
                os.link(path, draft / f"film{path.suffix}")
            except OSError:  # on another file system
                shutil.copyfile(path, draft / f"film{path.suffix}")
            draft.chmod(0o755)
            try:
                draft.rename(folder)
            except OSError:  # somebody else was quicker
                shutil.rmtree(draft)
        return folder

    async def written(self, frozen: FrozenPictures) -> Path:
        """Return the folder of a version, which is written where it is not there yet."""
        target = self._folder / frozen.dataset / str(frozen.number)
        async with self._writing.setdefault((frozen.dataset, frozen.number), asyncio.Lock()):
            if not target.exists():
                await asyncio.to_thread(self._write, frozen, target)
        return target

    def _write(self, frozen: FrozenPictures, target: Path) -> None:
        from weft.vision.formats.writing import write

        target.parent.mkdir(0o711, parents=True, exist_ok=True)  # an id tells the way, and no list does
        write(self.version(frozen), target, "coco")
        target.chmod(0o755)

    def version(self, frozen: FrozenPictures) -> DatasetVersion:
        """Return a version with its pictures. Blocks."""
        return self._library.version(f"{frozen.dataset}@{frozen.number}")

    async def _note(self, job: StoredJob, name: str, frozen: FrozenPictures) -> None:
        source = f"{KIND}{frozen.name}@{frozen.number}"
        await self._database.write(
            lambda c: record_input(
                c, job.id, name, digest=frozen.digest, source_type="pictures", source=source
            )
        )

    async def _seen_as(self, job: StoredJob) -> str | None:
        """Return the name by which a job's owner sees data sets; administrators see all of them."""
        role = await self._database.read(
            lambda c: c.scalar(sa.select(user_table.c.role).where(user_table.c.id == job.user_id))
        )
        return None if role == "admin" else job.user_name
