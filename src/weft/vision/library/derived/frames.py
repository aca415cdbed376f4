"""Frames of a film as pictures of its data set, which know their film and their time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.vision.films.frames import capture_frames, frame_times
from weft.vision.films.probing import probe_film
from weft.vision.library.blobs import BlobFolder
from weft.vision.library.importing import Report, add_picture
from weft.vision.library.store import LibraryStore
from weft.vision.pictures.decoding import encode_jpeg

QUALITY = 95  # of a JPEG
SAME_S = 1e-4  # between the times of one frame that is captured twice


def add_frames(
    store: LibraryStore,
    blobs: BlobFolder,
    film: Any,
    there_s: Collection[float],
    *,
    times_s: Sequence[float],
    every_s: float | None,
    user: str,
    report: Report | None,
) -> tuple[str, ...]:
    """Add the frames of a film's row but for those at times that are there; return the ids of new ones."""
    if film.kind != "film":
        raise PictureError(f"frames must be captured of a film, got {film.name}, a {film.kind}")
    path = blobs.path(film.sha256, film.media)
    times = frame_times(probe_film(path, film.name), times_s=times_s, every_s=every_s)
    ids = []
    for number, (time_s, pixels) in enumerate(capture_frames(path, times, film.name), 1):
        if not any(abs(time_s - other) < SAME_S for other in there_s):
            ids.append(
                add_picture(
                    store,
                    blobs,
                    film.dataset_id,
                    encode_jpeg(pixels, QUALITY),
                    f"{Path(film.name).stem}-{time_s:.3f}s.jpg",
                    user=user,
                    kind="frame",
                    parent=film.id,
                    time_s=round(time_s, 6),
                )
            )
        if report is not None:
            report(number, len(times))
    return tuple(ids)
