"""Auto-labelling: a model labels what nobody has, or frames of a film; labels carry its confidence and its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from weft.vision.inference.predictor import Predictor
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape


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
    predictor: Predictor,
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
    predictor: Predictor, film: Path, times_s: list[float], *, threshold: float | None = None
) -> Iterator[tuple[float, tuple[LabelledShape, ...]]]:
    """Yield the objects that a detector finds in frames of a film, with the time of each."""
    from weft.vision.films.frames import capture_frames

    for time_s, pixels in capture_frames(film, times_s):
        yield time_s, predictor.predict([pixels], confidence=threshold)[0].shapes
