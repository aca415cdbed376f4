"""Versions: immutable states of a data set, by number and digest. A training names the one that it used."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.errors import PictureError
from weft.files import write_whole
from weft.vision.formats.digest import digest_of
from weft.vision.formats.documents import shape_document, shape_of
from weft.vision.library.blobs import BlobFolder
from weft.vision.library.datasets import class_names
from weft.vision.library.rows import decode_shapes
from weft.vision.library.store import LibraryStore, now_ms
from weft.vision.library.tables import dataset, fact, file, version
from weft.vision.records import DatasetVersion, LabelledPicture
from weft.vision.refusals import PicturesNotFoundError
from weft.vision.views import VisionVersion

_FIELDS = (
    "id",
    "name",
    "width",
    "height",
    "sha256",
    "split",
    "category",
    "category_confidence",
    "film",
    "time_s",
)


def present_state(connection: sa.Connection, found: Any, blobs: BlobFolder) -> DatasetVersion:
    """Return a data set as it is now, as a version that has no number yet."""
    facts: dict[int, dict[str, str]] = {}
    of_set = sa.select(file.c.number).where(file.c.dataset_id == found.id)
    for one in connection.execute(sa.select(fact).where(fact.c.file_number.in_(of_set)).order_by(fact.c.key)):
        facts.setdefault(one.file_number, {})[one.key] = one.text
    rows = connection.execute(
        sa.select(file).where(file.c.dataset_id == found.id, file.c.kind != "film").order_by(file.c.number)
    )
    pictures = tuple(
        LabelledPicture(
            id=row.id,
            name=row.name,
            path=blobs.path(row.sha256, row.media),
            width=row.width,
            height=row.height,
            sha256=row.sha256,
            split=row.split,
            category=row.category,
            category_confidence=row.category_confidence,
            shapes=decode_shapes(row.shapes),
            metadata=facts.get(row.number, {}),
            film=row.parent,
            time_s=row.time_s,
        )
        for row in rows
    )
    state = DatasetVersion(
        name=found.name,
        number=0,
        digest="",
        pictures=pictures,
        labels=class_names(connection, found.id, "label"),
        categories=class_names(connection, found.id, "category"),
    )
    return replace(state, digest=digest_of(state))


def freeze(
    store: LibraryStore, blobs: BlobFolder, dataset_id: str, note: str, user: str
) -> tuple[VisionVersion, DatasetVersion]:
    """Freeze a data set as it is now; if nothing has changed since the newest version, that one is returned."""
    with store.writing() as connection:
        found = connection.execute(sa.select(dataset).where(dataset.c.id == dataset_id)).one()
        state = present_state(connection, found, blobs)
        if not state.pictures:
            raise PictureError(f"{found.name} must have pictures to be frozen, got none; import some")
        newest = connection.execute(
            sa.select(version)
            .where(version.c.dataset_id == dataset_id)
            .order_by(version.c.number.desc())
            .limit(1)
        ).one_or_none()
        if newest is not None and newest.digest == state.digest:
            return version_view(newest, found.name), replace(state, number=newest.number)
        number = found.next_version
        _write(_path(blobs, dataset_id, number), state)
        row = {
            "dataset_id": dataset_id,
            "number": number,
            "digest": state.digest,
            "note": note,
            "pictures": len(state.pictures),
            "shapes": sum(len(picture.shapes) for picture in state.pictures),
            "splits": json.dumps(Counter(picture.split for picture in state.pictures)),
            "labels": json.dumps(state.labels),
            "categories": json.dumps(state.categories),
            "user_name": user,
            "created_ms": now_ms(),
        }
        connection.execute(sa.insert(version), row)
        connection.execute(
            sa.update(dataset).where(dataset.c.id == dataset_id).values(next_version=number + 1)
        )
        kept = connection.execute(
            sa.select(version).where(version.c.dataset_id == dataset_id, version.c.number == number)
        ).one()
        return version_view(kept, found.name), replace(state, number=number)


def load_version(connection: sa.Connection, blobs: BlobFolder, found: Any, number: int) -> DatasetVersion:
    """Return a version that was frozen."""
    row = connection.execute(
        sa.select(version).where(version.c.dataset_id == found.id, version.c.number == number)
    ).one_or_none()
    if row is None:
        known = [str(one.number) for one in list_versions(connection, found)]
        there = f"one of {', '.join(known)}" if known else "one that was frozen, of which there is none"
        raise PicturesNotFoundError(
            f"the version of {found.name} must be {there}, got {number}; freeze one, or name the data set alone"
        )
    pictures = tuple(_picture(line, blobs) for line in _lines(_path(blobs, found.id, number)))
    state = DatasetVersion(
        name=found.name,
        number=number,
        digest=row.digest,
        pictures=pictures,
        labels=tuple(json.loads(row.labels)),
        categories=tuple(json.loads(row.categories)),
    )
    if digest_of(state) != row.digest:
        raise PictureError(
            f"version {number} of {found.name} must be as it was frozen, got another; restore a backup"
        )
    return state


def list_versions(connection: sa.Connection, found: Any) -> tuple[VisionVersion, ...]:
    """Return the versions of a data set, newest first."""
    rows = connection.execute(
        sa.select(version).where(version.c.dataset_id == found.id).order_by(version.c.number.desc())
    )
    return tuple(version_view(row, found.name) for row in rows)


def version_view(row: Any, name: str) -> VisionVersion:
    return VisionVersion(
        dataset=row.dataset_id,
        name=name,
        number=row.number,
        digest=row.digest,
        note=row.note,
        pictures=row.pictures,
        shapes=row.shapes,
        splits=json.loads(row.splits),
        labels=tuple(json.loads(row.labels)),
        categories=tuple(json.loads(row.categories)),
        created_ms=row.created_ms,
        user=row.user_name,
    )


def frozen_digests(blobs: BlobFolder) -> Iterator[str]:
    """Yield the digests of all pictures that a version has: they are kept though no file has them any more."""
    for path in (blobs.folder / "versions").glob("*/*.gz"):
        for line in _lines(path):
            yield line["sha256"]


def _path(blobs: BlobFolder, dataset_id: str, number: int) -> Path:
    return blobs.folder / "versions" / dataset_id / f"{number}.jsonl.gz"


def _write(path: Path, state: DatasetVersion) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(msgspec.json.encode(_document(picture)) + b"\n" for picture in state.pictures)
    write_whole(path, gzip.compress(lines, 3, mtime=0))


def _document(picture: LabelledPicture) -> dict[str, Any]:
    found = {name: getattr(picture, name) for name in _FIELDS if getattr(picture, name) is not None}
    found["suffix"] = picture.path.suffix
    if picture.shapes:
        found["shapes"] = [shape_document(shape) for shape in picture.shapes]
    if picture.metadata:
        found["metadata"] = dict(picture.metadata)
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with gzip.open(path, "rb") as file:
            for line in file:
                yield msgspec.json.decode(line)
    except (OSError, EOFError, msgspec.DecodeError) as error:
        raise PictureError(f"{path} must be a whole version: {error}; restore a backup") from None


def _picture(line: dict[str, Any], blobs: BlobFolder) -> LabelledPicture:
    fields = {name: line.get(name) for name in _FIELDS}
    return LabelledPicture(
        **fields,  # type: ignore[arg-type]
        path=blobs.path(line["sha256"], line["suffix"].removeprefix(".")),
        shapes=tuple(shape_of(shape) for shape in line.get("shapes", ())),
        metadata=line.get("metadata", {}),
    )
