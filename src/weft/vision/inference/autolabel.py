"""Auto-labelling: a model labels what nobody has, or frames of a film; labels carry its confidence and its name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from weft.vision.inference.predictor import PicturePredictor
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape
from weft.vision.splits import split_by_content


@dataclass(frozen=True)
class AutoLabels:
    """Labels that a model proposes for one picture."""

    picture: LabelledPicture
    shapes: tuple[LabelledShape, ...] = ()
    category: str | None = None
    confidence: float | None = None

    def applied(self) -> LabelledPicture:
        """Return the picture with these labels."""
        return replace(
            self.picture, shapes=self.shapes, category=self.category, category_confidence=self.confidence
        )


def is_unlabelled(picture: LabelledPicture, task: str | None) -> bool:
    """Return whether a person has said nothing of a picture yet; labels of a model count as none."""
    if task in ("detection", "segmentation"):
        return all(shape.confidence is not None for shape in picture.shapes)
    return picture.category is None or picture.category_confidence is not None


def autolabel(
    predictor: PicturePredictor,
    version: DatasetVersion,
    *,
    threshold: float | None = None,
    everything: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[AutoLabels]:
    """Yield the labels of a model for each picture that has none by a person, if they reach the threshold."""
    task = predictor.config.task
    wanted = [one for one in version.pictures if everything or is_unlabelled(one, task)]
    least = predictor.threshold if threshold is None else threshold
    for done, picture in enumerate(wanted, 1):
        found = predictor.predict([picture.path], confidence=least)[0]
        progress(done, len(wanted))
        if task in ("detection", "segmentation"):
            yield AutoLabels(picture, found.shapes)
        elif found.scores and found.scores[0][1] >= least:
            yield AutoLabels(picture, category=found.scores[0][0], confidence=found.scores[0][1])


def autolabel_film(
    predictor: PicturePredictor,
    film: Path,
    folder: Path,
    *,
    every_s: float,
    threshold: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> DatasetVersion:
    """Return frames of a film as pictures, which are written into a folder, with the labels of a model."""
    from weft.vision.films import capture_frames, frame_times, probe_film
    from weft.vision.formats.digest import digest_of
    from weft.vision.pictures import encode_jpeg

    about = probe_film(film)
    times = frame_times(about, every_s=every_s)
    found = []
    for done, (time_s, pixels) in enumerate(capture_frames(film, times), 1):
        name = f"{film.stem}-{time_s:.3f}s.jpg"
        data = encode_jpeg(pixels, 95)
        (folder / name).write_bytes(data)
        sha256 = hashlib.sha256(data).hexdigest()
        found.append(
            LabelledPicture(
                id=sha256[:32], name=name, path=folder / name, width=pixels.shape[1], height=pixels.shape[0],
                sha256=sha256, split=split_by_content(sha256), film=film.name, time_s=round(time_s, 6),
            )
        )  # fmt: skip
        progress(done, len(times))
    version = DatasetVersion(name=film.stem, number=0, digest="", pictures=tuple(found))
    made = {one.picture.id: one.applied() for one in autolabel(predictor, version, threshold=threshold)}
    labelled = replace(version, pictures=tuple(made.get(one.id, one) for one in found))
    return replace(labelled, digest=digest_of(labelled))
