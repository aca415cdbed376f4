"""A custom model where one of ours is asked: pictures in, predictions out, by its own `deploy.py`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from weft.vision.config.schema import VisionConfig
from weft.vision.custom.answers import custom_prediction
from weft.vision.custom.running import ABOUT, PACKED, CustomModel
from weft.vision.formats.archives import unpack
from weft.vision.inference.predictor import Prediction, Predictor
from weft.vision.pictures import encode_png, read_header
from weft.vision.pictures.encoded import read_encoded

Array = np.ndarray[Any, Any]


class CustomPredictor:
    """A loaded custom model, with the methods of `Predictor`; a context."""

    threshold = 0.5

    def __init__(self, folder: str | Path) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="weft-custom-")
        home = Path(folder)
        if not (home / ABOUT).is_file():
            unpack(home / PACKED, Path(self._place.name))
            home = Path(self._place.name)
        self._model = CustomModel(home)
        self._name = Path(folder).resolve().name
        self.classes = tuple(self._model.about["classes"])
        self.config = VisionConfig(task=self._model.about["task"], name=self._name)

    def predict(
        self, pictures: Iterable[Path | bytes | Array], *, confidence: float | None = None, heat: bool = False
    ) -> list[Prediction]:
        """Return an answer for each picture: a path, encoded bytes, or decoded pixels (height x width x 3, RGB)."""
        least = self.threshold if confidence is None else confidence
        return [self._answer(one, least) for one in pictures]

    def _answer(self, picture: Path | bytes | Array, least: float) -> Prediction:
        data = (
            encode_png(picture) if isinstance(picture, np.ndarray)
            else read_encoded(picture) if isinstance(picture, Path) else picture
        )  # fmt: skip
        header = read_header(data)
        with tempfile.NamedTemporaryFile(prefix="weft-asked-", suffix=".png") as file:
            file.write(data)
            file.flush()
            answer = self._model.predict(Path(file.name), {"confthre": str(least), "heatmap": "false"})
        return custom_prediction(answer, header.width, header.height, confidence=least, model=self._name)

    def close(self) -> None:
        """End its process."""
        self._model.close()
        self._place.cleanup()

    def __enter__(self) -> CustomPredictor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_predictor(folder: str | Path, *, device: str | None = None) -> Predictor | CustomPredictor:
    """Return the model of a folder, whoever's it is."""
    home = Path(folder)
    if any((home / name).is_file() for name in (ABOUT, PACKED)):
        return CustomPredictor(home)
    return Predictor(home, device=device)
