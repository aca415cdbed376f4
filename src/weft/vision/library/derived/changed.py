"""Changed pictures: each picture of a data set by each step of an augmentation, with shapes moved along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from weft.vision.augment.applying import apply_change
from weft.vision.augment.planning import AugmentStep, plan_change
from weft.vision.library import labelling
from weft.vision.library.blobs import BlobFolder
from weft.vision.library.importing import Report, add_picture
from weft.vision.library.store import LibraryStore
from weft.vision.library.tables import file
from weft.vision.pictures.decoding import decode, encode_jpeg
from weft.vision.records import LabelledPicture

QUALITY = 95  # of a JPEG


def add_changed_pictures(
    store: LibraryStore,
    blobs: BlobFolder,
    dataset_id: str,
    pictures: Sequence[LabelledPicture],
    steps: Sequence[AugmentStep],
    *,
    seed: int,
    user: str,
    report: Report | None,
) -> None:
    """Add to a data set what each step makes of each picture."""
    for number, picture in enumerate(pictures):
        _add_changed(store, blobs, dataset_id, picture, steps, seed, user)
        if report is not None:
            report((number + 1) * len(steps), len(pictures) * len(steps))


def _add_changed(
    store: LibraryStore,
    blobs: BlobFolder,
    dataset_id: str,
    picture: LabelledPicture,
    steps: Sequence[AugmentStep],
    seed: int,
    user: str,
) -> None:
    pixels = decode(picture.path)
    for place, step in enumerate(steps):
        change = plan_change(step, picture, seed + place)
        identity = add_picture(
            store,
            blobs,
            dataset_id,
            encode_jpeg(apply_change(pixels, change), QUALITY),
            f"{Path(picture.name).stem}-{step.kind}-{place + 1}.jpg",
            user=user,
            split=picture.split,  # what is made of a picture of test is of test, too
        )
        with store.writing() as connection:
            row = connection.execute(sa.select(file).where(file.c.id == identity)).one()
            labelling.store_labels(
                connection,
                row,
                change.moved(picture.shapes),
                picture.category,
                category_confidence=picture.category_confidence,
                user=user,
            )
