"""A library of data sets in a folder: what the command line, the service and programs call.

    with Library(Path("pictures")) as library:
        flowers = library.create("flowers")
        library.import_from("flowers", "flowers.zip")
        version = library.version("flowers")

Pictures are kept by content below the folder; everything else is in SQLite beside them, or in PostgreSQL. Callers
name the user; a user of None is whoever has the folder, or an administrator, who sees everything.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.files import data_folder
from weft.vision.augment.planning import AugmentStep
from weft.vision.films.frames import capture_frames
from weft.vision.films.probing import FILM_SUFFIXES
from weft.vision.formats.archives import ZipLimits, unpack
from weft.vision.formats.found import FoundPicture, FoundSet, is_picture
from weft.vision.formats.reading import scan, scan_folder
from weft.vision.formats.writing import write
from weft.vision.library import changing, datasets, files, labelling, tasks, versions
from weft.vision.library.blobs import BlobFolder, digest_of_file
from weft.vision.library.derived.changed import add_changed_pictures
from weft.vision.library.derived.frames import add_frames
from weft.vision.library.files import FileFilter
from weft.vision.library.health import dataset_health, look_at_all
from weft.vision.library.importing import ImportResult, Report, add_film, add_picture, films_below, import_set
from weft.vision.library.rows import decode_shapes, detail_of, details_of, shape_of_view, views_of
from weft.vision.library.store import LibraryStore
from weft.vision.library.tables import dataset, file
from weft.vision.pictures.decoding import decode, encode_jpeg, encode_png
from weft.vision.records import DatasetVersion, LabelledShape
from weft.vision.views import (
    ShapeView,
    VisionDataset,
    VisionFile,
    VisionFileDetail,
    VisionFiles,
    VisionHealth,
    VisionTask,
    VisionVersion,
)

User = str | None


def default_library() -> Path:
    """Return the folder of the user's own library."""
    return data_folder() / "vision"


class Library:
    """Data sets in one folder; may be used from several threads and processes at once."""

    def __init__(
        self, folder: str | Path, address: str | None = None, *, limits: ZipLimits | None = None
    ) -> None:
        self.folder = Path(folder).expanduser()
        try:
            self.blobs = BlobFolder(self.folder)
        except OSError as error:
            raise PictureError(
                f"{self.folder} must be a folder that can be written: {error.strerror}; choose another"
            ) from None
        self.store = LibraryStore(address or f"sqlite:///{self.folder / 'library.db'}")
        self._limits = limits

    def __enter__(self) -> Library:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    # -- data sets --------------------------------------------------------------------------------

    def datasets(self, user: User = None) -> tuple[VisionDataset, ...]:
        """Return all data sets that a user may see, the one changed last first."""
        with self.store.reading() as connection:
            rows = connection.execute(
                sa.select(dataset).order_by(dataset.c.updated_ms.desc(), dataset.c.name)
            ).all()
            return datasets.dataset_views(
                connection, [row for row in rows if datasets.may_see(row, user)], user
            )

    def seen(self, user: User = None) -> frozenset[str]:
        """Return the ids of all data sets that a user may see, without what is in them."""
        with self.store.reading() as connection:
            rows = connection.execute(sa.select(dataset.c.id, dataset.c.owner, dataset.c.shares))
            return frozenset(row.id for row in rows if datasets.may_see(row, user))

    def dataset(self, reference: str, user: User = None) -> VisionDataset:
        """Return a data set by its id or its name."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
            return datasets.dataset_views(connection, [row], user)[0]

    def create(self, name: str, *, description: str = "", user: User = None) -> VisionDataset:
        """Make a data set."""
        with self.store.writing() as connection:
            identity = datasets.create_dataset(connection, name, user or "", description)
        return self.dataset(identity, user)

    def change(self, reference: str, *, user: User = None, **changes: Any) -> VisionDataset:
        """Change the name, the description, the shares or the cover of a data set."""
        with self.store.writing() as connection:
            row = datasets.find_dataset(connection, reference, user, own=True)
            if changes.get("name") is not None:
                datasets.check_name(connection, changes["name"], row.owner, row.id)
            values = {key: value for key, value in changes.items() if value is not None}
            if "shares" in values:
                values["shares"] = json.dumps(list(values["shares"]))
            if values:
                connection.execute(sa.update(dataset).where(dataset.c.id == row.id).values(values))
            datasets.touch(connection, row.id)
        return self.dataset(row.id, user)

    def remove(self, reference: str, user: User = None) -> None:
        """Remove a data set with its files and versions; pictures that nothing else has go at the next sweep."""
        with self.store.writing() as connection:
            row = datasets.find_dataset(connection, reference, user, own=True)
            connection.execute(sa.delete(dataset).where(dataset.c.id == row.id))
        shutil.rmtree(self.folder / "versions" / row.id, ignore_errors=True)

    def set_classes(
        self,
        reference: str,
        *,
        labels: Sequence[changing.ClassEntry] | None = None,
        categories: Sequence[changing.ClassEntry] | None = None,
        user: User = None,
    ) -> VisionDataset:
        """Order, colour, rename, add and remove labels and categories."""
        with self.store.writing() as connection:
            row = datasets.find_dataset(connection, reference, user)
            if labels is not None:
                changing.set_classes(connection, row.id, "label", labels, user or "")
            if categories is not None:
                changing.set_classes(connection, row.id, "category", categories, user or "")
        return self.dataset(row.id, user)

    # -- files ------------------------------------------------------------------------------------

    def files(
        self,
        reference: str,
        wanted: FileFilter | None = None,
        *,
        after: str | None = None,
        limit: int = 100,
        user: User = None,
    ) -> VisionFiles:
        """Return one page of the files of a data set."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
            return files.list_files(connection, row.id, wanted or FileFilter(), after, limit)

    def details(
        self, reference: str, wanted: FileFilter | None = None, user: User = None
    ) -> tuple[VisionFileDetail, ...]:
        """Return all files that a filter lets through, with labels and metadata, but without their neighbours."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
            return details_of(connection, files.wanted_files(connection, row.id, (), wanted or FileFilter()))

    def file(self, file_id: str, user: User = None) -> VisionFileDetail:
        """Return one file with its labels."""
        with self.store.reading() as connection:
            return detail_of(connection, files.find_file(connection, file_id, user))

    def save_labels(
        self,
        file_id: str,
        revision: int,
        shapes: Sequence[LabelledShape | ShapeView],
        category: str | None = None,
        *,
        category_confidence: float | None = None,
        review: str | None = None,
        user: User = None,
        by: str = "",
    ) -> VisionFileDetail:
        """Save the labels of a file as a whole; LabelsChangedError where its revision is another one."""
        given = [shape_of_view(shape) if isinstance(shape, ShapeView) else shape for shape in shapes]
        with self.store.writing() as connection:
            row = files.find_file(connection, file_id, user)
            labelling.save_labels(
                connection,
                row,
                revision,
                given,
                category,
                category_confidence=category_confidence,
                review=review,
                user=by or user or "",
            )
            return detail_of(connection, files.find_file(connection, file_id, user))

    def save_metadata(self, file_id: str, metadata: Mapping[str, str], user: User = None) -> VisionFileDetail:
        """Give a file keys and values."""
        with self.store.writing() as connection:
            row = files.find_file(connection, file_id, user)
            labelling.save_metadata(connection, row, metadata)
            return detail_of(connection, row)

    def change_files(
        self,
        reference: str,
        action: str,
        *,
        ids: Sequence[str] = (),
        wanted: FileFilter | None = None,
        target: str | None = None,
        category: str | None = None,
        confidence: float = 0.0,
        user: User = None,
        by: str = "",
    ) -> tuple[int, int]:
        """Copy, move, delete, categorise, accept, reject, review or approve files; return how many changed, and not."""
        with self.store.writing() as connection:
            row = datasets.find_dataset(connection, reference, user)
            rows = files.wanted_files(connection, row.id, tuple(ids), wanted)
            asked = len(rows) if wanted is not None else len(set(ids))
            name = by or user or ""
            if action in ("copy", "move"):
                if target is None:
                    raise PictureError(
                        f"files must have a data set to {action} to, got none; name the target"
                    )
                into = datasets.find_dataset(connection, target, user)
                if action == "move" and into.id == row.id:
                    return 0, asked
                changing.copy_files(connection, rows, into.id, name)
                if action == "move":
                    changing.remove_files(connection, rows)
                return len(rows), asked - len(rows)
            if action == "delete":
                changing.remove_files(connection, rows)
                return len(rows), asked - len(rows)
            steps: dict[str, Callable[[Any], bool]] = {
                "categorise": lambda one: changing.categorise(connection, one, category, name),
                "accept": lambda one: labelling.accept(connection, one, confidence, name),
                "reject": lambda one: labelling.reject(connection, one, confidence, name),
                "review": lambda one: changing.set_review(connection, one, "review", name),
                "approve": lambda one: changing.set_review(connection, one, "approved", name),
            }
            if action not in steps:
                raise PictureError(
                    f"an action must be copy, move, delete or one of {', '.join(steps)}, got {action!r}"
                )
            changed = sum(steps[action](one) for one in rows)
            return changed, asked - changed

    def remove_file(self, file_id: str, user: User = None) -> None:
        """Remove a file; the frames of a film go with it."""
        with self.store.writing() as connection:
            changing.remove_files(connection, [files.find_file(connection, file_id, user)])

    def picture_path(self, file_id: str, user: User = None) -> tuple[Path, str]:
        """Return where the bytes of a file are, and their kind."""
        with self.store.reading() as connection:
            row = files.find_file(connection, file_id, user)
        return self.blobs.path(row.sha256, row.media), row.media

    def thumbnail(self, file_id: str, side: int = 256, user: User = None) -> Path:
        """Return a small JPEG of a picture, or of a film's first frame."""
        with self.store.reading() as connection:
            row = files.find_file(connection, file_id, user)
        if row.kind != "film":
            return self.blobs.thumbnail(row.sha256, row.media, side)
        path = self.blobs.thumbnail_path(row.sha256, side)
        if not path.exists():
            first = next(capture_frames(self.blobs.path(row.sha256, row.media), [0.0], row.name), None)
            if first is None:
                raise PictureError(f"{row.name} must have a frame, got none")
            small = decode(encode_png(first[1]), max_side=side)
            self.blobs.keep_thumbnail(row.sha256, side, encode_jpeg(small))
        return path

    # -- imports ----------------------------------------------------------------------------------

    def add(
        self,
        reference: str,
        data: bytes,
        name: str,
        *,
        category: str | None = None,
        skip_duplicates: bool = False,
        user: User = None,
        by: str = "",
    ) -> VisionFile:
        """Add one picture."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
        identity = add_picture(
            self.store,
            self.blobs,
            row.id,
            data,
            name,
            category=category,
            skip_duplicates=skip_duplicates,
            user=by or user or "",
        )
        return self._view(identity)

    def add_film(
        self, reference: str, path: Path, name: str = "", *, user: User = None, by: str = ""
    ) -> VisionFile:
        """Add a film; a file of the library's incoming folder moves, another one is copied."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
        draft = path
        if path.parent != self.blobs.folder / "incoming":
            draft = self.blobs.draft(path.suffix)
            shutil.copyfile(path, draft)
        try:
            return self._view(
                add_film(self.store, self.blobs, row.id, draft, name or path.name, user=by or user or "")
            )
        finally:
            draft.unlink(missing_ok=True)

    def _view(self, identity: str) -> VisionFile:
        with self.store.reading() as connection:
            row = connection.execute(sa.select(file).where(file.c.id == identity)).one()
            return views_of(connection, [row])[0]

    def import_from(
        self,
        reference: str,
        source: str | Path,
        *,
        skip_duplicates: bool = False,
        report: Report | None = None,
        stopped: Callable[[], bool] = lambda: False,
        user: User = None,
    ) -> ImportResult:
        """Import a folder, a zip, a picture, a film or a file of labels; one that was interrupted goes on."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
        path = Path(source).expanduser().absolute()
        with self._scanned(path) as (found, films, key):
            if not found.pictures and not films:
                reason = found.problems[0] if found.problems else "check the path"
                raise PictureError(f"{source} must have pictures or films, got none; {reason}")
            return import_set(
                self.store,
                self.blobs,
                row.id,
                found,
                source=key,
                films=films,
                user=user or "",
                skip_duplicates=skip_duplicates,
                report=report,
                stopped=stopped,
            )

    @contextmanager
    def _scanned(self, path: Path) -> Iterator[tuple[FoundSet, list[Path], str]]:
        """Yield what a path has, its films, and a name that stays the same when the import is started again."""
        if path.is_dir():
            yield scan_folder(path), films_below(path), str(path)
        elif path.suffix.lower() == ".zip" and path.is_file():
            digest = digest_of_file(path)
            place = self.blobs.folder / "incoming" / f"zip-{digest}"
            shutil.rmtree(place, ignore_errors=True)  # of one that was interrupted while it was unpacked
            place.mkdir()
            try:
                unpack(path, place, self._limits)
                yield scan_folder(place, confined=True), films_below(place), f"zip {digest}"
            finally:
                shutil.rmtree(place, ignore_errors=True)
        elif path.suffix.lower() in FILM_SUFFIXES:
            yield FoundSet(name=path.stem, format="film", pictures=()), [path], str(path)
        elif is_picture(path):
            one = FoundPicture(name=path.name, path=path)
            yield FoundSet(name=path.stem, format="picture", pictures=(one,)), [], str(path)
        else:
            yield scan(path), [], str(path)

    # -- versions and exports ---------------------------------------------------------------------

    def version(self, text: str, user: User = None, *, note: str = "") -> DatasetVersion:
        """Return NAME@VERSION, or NAME as it is now: it is frozen first if anything has changed."""
        name, _, number = text.partition("@")
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, name, user)
            if number:
                if not number.isdecimal():
                    raise PictureError(
                        f"a version must be NAME@NUMBER, got {text[:80]!r}; write {row.name}@1"
                    )
                return versions.load_version(connection, self.blobs, row, int(number))
        return versions.freeze(self.store, self.blobs, row.id, note, user or "")[1]

    def freeze(self, reference: str, *, note: str = "", user: User = None) -> VisionVersion:
        """Freeze a version of a data set; the newest one is returned if nothing has changed since."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
        return versions.freeze(self.store, self.blobs, row.id, note, user or "")[0]

    def versions(self, reference: str, user: User = None) -> tuple[VisionVersion, ...]:
        """Return the versions of a data set, newest first."""
        with self.store.reading() as connection:
            return versions.list_versions(connection, datasets.find_dataset(connection, reference, user))

    def export(self, text: str, path: str | Path, format: str = "coco", user: User = None) -> Path:
        """Write NAME or NAME@VERSION in a format; NAME is written as it is now, and not frozen."""
        if "@" in text:
            return write(self.version(text, user), path, format)
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, text, user)
            state = versions.present_state(connection, row, self.blobs)
        if not state.pictures:
            raise PictureError(f"{row.name} must have pictures to be exported, got none; import some")
        return write(state, path, format)

    # -- health, copies, augmentation, films ------------------------------------------------------

    def health(
        self, reference: str, *, near: bool = False, report: Report | None = None, user: User = None
    ) -> VisionHealth:
        """Return the health of a data set; `near`: with near duplicates, for which all pictures are looked at once."""
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
        if near:
            look_at_all(self.store, self.blobs, row.id, report)
        with self.store.reading() as connection:
            return dataset_health(connection, row.id)

    def doubt(
        self, reference: str, model: str, predicted: Mapping[str, Sequence[LabelledShape]], user: User = None
    ) -> None:
        """Keep where a model's predictions, by file, disagree with the labels: its health names them, worst first."""
        with self.store.writing() as connection:
            row = datasets.find_dataset(connection, reference, user)
            for one in files.wanted_files(connection, row.id, tuple(predicted), None):
                doubt, text = labelling.doubt_about(decode_shapes(one.shapes), predicted[one.id])
                labelling.store_doubt(connection, one, model, doubt, text)

    def clone(self, reference: str, name: str, user: User = None) -> VisionDataset:
        """Copy a data set with its labels; pictures are kept once."""
        with self.store.writing() as connection:
            row = datasets.find_dataset(connection, reference, user)
            identity = datasets.create_dataset(
                connection, name, user if user is not None else row.owner, row.description
            )
            for kind in ("label", "category"):
                entries = [
                    changing.ClassEntry(one.name, one.colour)
                    for one in datasets.class_views(connection, row.id, kind)
                ]
                changing.set_classes(connection, identity, kind, entries, user or "")
            changing.copy_files(
                connection, files.wanted_files(connection, row.id, (), FileFilter()), identity, user or ""
            )
        return self.dataset(identity, user)

    def augment(
        self,
        reference: str,
        name: str,
        steps: Sequence[AugmentStep],
        *,
        keep: bool = True,
        seed: int = 0,
        report: Report | None = None,
        user: User = None,
    ) -> VisionDataset:
        """Make a data set of changed pictures, one for each step and picture, with shapes moved along."""
        if not steps:
            raise PictureError("an augmentation must have a step, got none; name one such as flip_left_right")
        with self.store.reading() as connection:
            row = datasets.find_dataset(connection, reference, user)
            state = versions.present_state(connection, row, self.blobs)
        made = self.clone(row.id, name, user) if keep else self.create(name, user=user)
        try:
            add_changed_pictures(
                self.store,
                self.blobs,
                made.id,
                state.pictures,
                steps,
                seed=seed,
                user=user or "",
                report=report,
            )
        except BaseException:
            self.remove(made.id, user)  # half of an augmented data set is none
            raise
        return self.dataset(made.id, user)

    def capture(
        self,
        film_id: str,
        *,
        times_s: Sequence[float] = (),
        every_s: float | None = None,
        report: Report | None = None,
        user: User = None,
    ) -> tuple[str, ...]:
        """Capture frames of a film as pictures that are its children; return the ids of those that are new."""
        with self.store.reading() as connection:
            row = files.find_file(connection, film_id, user)
            there = set(connection.scalars(sa.select(file.c.time_s).where(file.c.parent == row.id)))
        return add_frames(
            self.store,
            self.blobs,
            row,
            there,
            times_s=times_s,
            every_s=every_s,
            user=user or "",
            report=report,
        )

    def fill_track(self, film_id: str, track: str, user: User = None) -> int:
        """Put the boxes of a track into the frames between those where it was drawn; return how many were put."""
        with self.store.writing() as connection:
            row = files.find_file(connection, film_id, user)
            return labelling.fill_track(connection, row.id, track, user or "")

    # -- tasks and upkeep -------------------------------------------------------------------------

    def tasks(
        self, user: User = None, reference: str | None = None, limit: int = 100
    ) -> tuple[VisionTask, ...]:
        """Return background work, newest first."""
        with self.store.reading() as connection:
            wanted = datasets.find_dataset(connection, reference, user).id if reference is not None else None
            return tasks.list_tasks(connection, user, wanted, limit)

    def task(self, task_id: str, user: User = None) -> VisionTask:
        with self.store.reading() as connection:
            return tasks.task_view(tasks.find_task(connection, task_id, user))

    def sweep(self) -> int:
        """Remove pictures that neither a file nor a version has any more; return how many files went."""
        with self.store.reading() as connection:
            kept = set(connection.scalars(sa.select(file.c.sha256).distinct()))
        kept |= set(versions.frozen_digests(self.blobs))
        return self.blobs.sweep(kept)
