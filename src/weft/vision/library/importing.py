"""Importing: pictures and films with their labels into a data set; streaming, resumable, and whole or not at all.

The bytes of a picture are in their place before its row is written, and rows are written in transactions with all
that belongs to them. So an import that is killed leaves no half-imported picture, and goes on where it was when it is
started again: each row knows the place in the source that it came from.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.films.probing import FILM_SUFFIXES, probe_film
from weft.vision.formats.found import FoundPicture, FoundSet
from weft.vision.formats.reading import placed_shapes
from weft.vision.geometry.validity import label_problem
from weft.vision.library.blobs import BlobFolder, digest_of_file
from weft.vision.library.datasets import add_classes, touch
from weft.vision.library.rows import NewFile, counted, file_row, insert_files, label_fields
from weft.vision.library.store import LibraryStore
from weft.vision.library.tables import dataset, file
from weft.vision.pictures.encoded import read_encoded
from weft.vision.pictures.headers import PictureHeader, read_header
from weft.vision.splits import split_by_content

BATCH = 256  # rows in one transaction
_AHEAD = 64  # pictures that are being read before they are needed
MOST_PROBLEMS = 100  # that are kept in words; the rest is counted
Report = Callable[[int, int], object]  # done, total
LONGEST_NAME = 500  # characters of a file's name


@dataclass
class ImportResult:
    """The outcome of an import."""

    added: int = 0
    there: int = 0  # already, from an import that was interrupted, or as duplicates that were to be skipped
    left_out: int = 0
    problems: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)  # of what was added, at most 1000

    def problem(self, text: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(text)


@dataclass(frozen=True)
class _Read:
    """A picture whose bytes are in their place."""

    header: PictureHeader
    sha256: str
    size: int


def import_set(
    store: LibraryStore,
    blobs: BlobFolder,
    dataset_id: str,
    found: FoundSet,
    *,
    source: str,
    films: Iterable[Path] = (),
    user: str = "",
    skip_duplicates: bool = False,
    report: Report | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> ImportResult:
    """Import what was found; `source` names it, so that the same import goes on after an interruption."""
    result = ImportResult()
    for problem in found.problems:
        result.problem(problem)
    with store.writing() as connection:
        add_classes(connection, dataset_id, "label", _usable(found.labels, result))
        add_classes(connection, dataset_id, "category", _usable(found.categories, result))
        origins = set(
            connection.scalars(
                sa.select(file.c.origin).where(file.c.dataset_id == dataset_id, file.c.origin.is_not(None))
            )
        )
        digests = set(connection.scalars(sa.select(file.c.sha256).where(file.c.dataset_id == dataset_id)))
    films = list(films)
    total = len(found.pictures) + len(films)
    pending: list[NewFile] = []
    given_splits = any(picture.split is not None for picture in found.pictures)
    for number, (picture, read) in enumerate(_read_ahead(blobs, found.pictures, source, origins), 1):
        if stopped():
            break
        if isinstance(read, _Read) and skip_duplicates and read.sha256 in digests:
            result.there += 1
        elif isinstance(read, _Read):
            digests.add(read.sha256)
            new = _picture(picture, read, dataset_id, origin_of(source, picture), given_splits, user, result)
            pending.append(new)
        elif read is None:
            result.there += 1
        else:
            result.left_out += 1
            result.problem(str(read))
        if len(pending) >= BATCH:
            _insert(store, dataset_id, pending, result)
            pending = []
        if report is not None and (number % 64 == 0 or number == total):
            report(number, total)
    _insert(store, dataset_id, pending, result)
    for number, path in enumerate(films, len(found.pictures) + 1):
        if stopped():
            break
        _import_film(store, blobs, dataset_id, path, source, origins, user, result)
        if report is not None:
            report(number, total)
    return result


def _usable(names: Iterable[str], result: ImportResult) -> list[str]:
    kept = []
    for name in names:
        problem = label_problem(name)
        if problem is None:
            kept.append(name)
        else:
            result.problem(f"{problem}; the name was left out")
    return kept


def origin_of(source: str, picture: FoundPicture) -> str:
    """Return what tells the same picture of the same source in another run of an import."""
    return _digest_of_names(source, picture.path, picture.name)


def _digest_of_names(*names: object) -> str:
    """Return a digest of names, of which a file system may have some that are no UTF-8."""
    return hashlib.sha256(os.fsencode("\0".join(map(str, names)))).hexdigest()


def _read_ahead(
    blobs: BlobFolder, pictures: tuple[FoundPicture, ...], source: str, origins: set[str | None]
) -> Iterator[tuple[FoundPicture, _Read | PictureError | None]]:
    """Yield pictures in order with their bytes in place; some are read while others are written."""
    with ThreadPoolExecutor(min(4, (os.cpu_count() or 1) + 1), "import") as pool:
        waiting: deque[tuple[FoundPicture, Future[_Read | PictureError] | None]] = deque()
        for picture in pictures:
            known = origin_of(source, picture) in origins
            waiting.append((picture, None if known else pool.submit(_read, blobs, picture)))
            if len(waiting) >= _AHEAD:
                first, result = waiting.popleft()
                yield first, result.result() if result is not None else None
        while waiting:
            first, result = waiting.popleft()
            yield first, result.result() if result is not None else None


def _read(blobs: BlobFolder, picture: FoundPicture) -> _Read | PictureError:
    try:
        data = read_encoded(picture.path)
        header = read_header(data, picture.name)
    except PictureError as error:
        return error
    sha256 = hashlib.sha256(data).hexdigest()
    blobs.put(data, sha256, header.kind)
    return _Read(header, sha256, len(data))


def _picture(
    picture: FoundPicture,
    read: _Read,
    dataset_id: str,
    origin: str | None,
    given_splits: bool,
    user: str,
    result: ImportResult,
) -> NewFile:
    problems: list[str] = []
    shapes = placed_shapes(picture, read.header, problems)
    category = picture.category
    if category is not None and (problem := label_problem(category)) is not None:
        problems.append(f"{picture.name}: {problem}; the category was left out")
        category = None
    for text in problems:
        result.problem(text)
    split = (picture.split or "train") if given_splits else split_by_content(read.sha256)
    row = file_row(
        dataset_id=dataset_id,
        name=shown_name(picture.name),
        kind="picture",
        media=read.header.kind,
        sha256=read.sha256,
        bytes=read.size,
        width=read.header.width,
        height=read.header.height,
        split=split,
        origin=origin,
        time_s=picture.time_s,
        updated_by=user,
        **label_fields(shapes, category, picture.category_confidence),
    )
    return NewFile(
        row=row,
        facts={**read.header.exif, **picture.metadata},
        given=frozenset(picture.metadata),
        labels=counted(shapes),
    )


def shown_name(name: str) -> str:
    """Return a name without control characters, of a length that pages can show."""
    return (
        "".join(letter if letter.isprintable() else "\ufffd" for letter in name)[:LONGEST_NAME] or "picture"
    )


def _insert(store: LibraryStore, dataset_id: str, pending: list[NewFile], result: ImportResult) -> None:
    if not pending:
        return
    with store.writing() as connection:
        if connection.scalar(sa.select(dataset.c.id).where(dataset.c.id == dataset_id)) is None:
            raise PictureError("the data set must stay while pictures are imported, got one that was removed")
        add_classes(connection, dataset_id, "label", [name for one in pending for name in one.labels])
        used = [one.row["category"] for one in pending if one.row["category"] is not None]
        add_classes(connection, dataset_id, "category", used)
        insert_files(connection, pending)
        touch(connection, dataset_id)
    result.added += len(pending)
    result.ids += [one.row["id"] for one in pending[: max(0, 1000 - len(result.ids))]]


def add_picture(
    store: LibraryStore,
    blobs: BlobFolder,
    dataset_id: str,
    data: bytes,
    name: str,
    *,
    category: str | None = None,
    user: str = "",
    skip_duplicates: bool = False,
    **fields: Any,
) -> str:
    """Add one picture; return its id, or that of one with the same bytes where those are skipped."""
    header = read_header(data, name)
    if category is not None and (problem := label_problem(category)) is not None:
        raise PictureError(problem)
    sha256 = hashlib.sha256(data).hexdigest()
    if skip_duplicates:
        with store.reading() as connection:
            there = connection.scalar(
                sa.select(file.c.id).where(file.c.dataset_id == dataset_id, file.c.sha256 == sha256).limit(1)
            )
        if there is not None:
            return str(there)
    blobs.put(data, sha256, header.kind)
    values: dict[str, Any] = {
        "dataset_id": dataset_id,
        "name": shown_name(name),
        "kind": "picture",
        "media": header.kind,
        "sha256": sha256,
        "bytes": len(data),
        "width": header.width,
        "height": header.height,
        "split": split_by_content(sha256),
        "updated_by": user,
        **label_fields((), category, None),
    }
    row = file_row(**(values | fields))
    _insert(store, dataset_id, [NewFile(row=row, facts=dict(header.exif), labels={})], ImportResult())
    return str(row["id"])


def _import_film(
    store: LibraryStore,
    blobs: BlobFolder,
    dataset_id: str,
    path: Path,
    source: str,
    origins: set[str | None],
    user: str,
    result: ImportResult,
) -> None:
    origin = _digest_of_names(source, path)
    if origin in origins:
        result.there += 1
        return
    draft = blobs.draft(path.suffix)
    try:
        draft.write_bytes(path.read_bytes()) if path.stat().st_size < 1 << 20 else _copy(path, draft)
        identity = add_film(store, blobs, dataset_id, draft, path.name, user=user, origin=origin)
        result.added += 1
        result.ids.append(identity)
    except PictureError as error:
        result.left_out += 1
        result.problem(str(error))
    finally:
        draft.unlink(missing_ok=True)


def _copy(path: Path, draft: Path) -> None:
    import shutil

    shutil.copyfile(path, draft)


def add_film(
    store: LibraryStore,
    blobs: BlobFolder,
    dataset_id: str,
    draft: Path,
    name: str,
    *,
    user: str = "",
    origin: str | None = None,
) -> str:
    """Add a film from a file of the incoming folder, which moves; return its id."""
    film = probe_film(draft, name)
    sha256 = digest_of_file(draft)
    size = draft.stat().st_size
    blobs.take(draft, sha256, film.suffix)
    row = file_row(
        dataset_id=dataset_id,
        name=shown_name(name),
        kind="film",
        media=film.suffix,
        sha256=sha256,
        bytes=size,
        width=film.width,
        height=film.height,
        duration_s=film.duration_s,
        frames_per_s=film.frames_per_s,
        split="train",
        origin=origin,
        updated_by=user,
    )
    _insert(store, dataset_id, [NewFile(row=row, facts={"codec": film.codec}, labels={})], ImportResult())
    return str(row["id"])


def films_below(folder: Path) -> list[Path]:
    """Return the films of a folder and of those in it."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in FILM_SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
