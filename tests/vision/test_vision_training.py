"""Trainings from made pictures to answers: a whole loop, detection, anomalies, films."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from msgspec.structs import replace
from testing.vision.made_films import film_bytes, turned_film

from weft.errors import PictureError
from weft.serve.card import read_card
from weft.vision.config import (
    AugmentConfig,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    VisionConfig,
)
from weft.vision.evaluation.folder import evaluate_folder
from weft.vision.export.ibm import read_zip, write_zip
from weft.vision.inference.autolabel import autolabel, autolabel_film
from weft.vision.inference.film import caption_film
from weft.vision.inference.predictor import Predictor
from weft.vision.models.building import build_model, imagenet_weights
from weft.vision.models.classifier import view_logits
from weft.vision.opening import open_data
from weft.vision.records import DatasetVersion, LabelledPicture, LabelledShape, Split
from weft.vision.training import train
from weft.vision.training.anomaly_run import judged_pictures
from weft.vision.training.averaging import AveragedWeights
from weft.vision.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from weft.vision.training.loop import LoopResult, _since
from weft.vision.training.optimizers import freeze, parameter_groups
from weft.vision.training.world import SoloWorld

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Nets here are tiny: threads would only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def class_folders(folder: Path, count: int = 16) -> Path:
    """Make pictures of 40 x 32: horizontal and vertical stripes, of any colours."""
    generator = np.random.default_rng(0)
    for name, axis in (("across", 0), ("down", 1)):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            stripes = (np.indices((32, 40))[axis] // 3 % 2)[:, :, None]
            one, other = generator.integers(0, 256, (2, 3))
            noise = generator.normal(0, 8, (32, 40, 3))
            picture = np.where(stripes, one, (other + 128) % 256) + noise
            cv2.imwrite(str(folder / name / f"{number}.png"), np.clip(picture, 0, 255).astype(np.uint8))
    return folder


def small_config(data: Path, epochs: float = 12) -> VisionConfig:
    return VisionConfig(
        data=str(data),
        model="small",
        size=32,
        batch=8,
        augment=AugmentConfig(flip=True, crop=0.1),
        optimizer=OptimizerConfig(lr=2e-3),
        schedule=ScheduleConfig(epochs=epochs, evaluate_every=4),
        ema=0.9,
    )


def split(version: DatasetVersion) -> DatasetVersion:
    """Return a version whose every fourth picture is for the test, the one after it for choosing."""
    from dataclasses import replace

    names = ("test", "validation", "train", "train")
    pictures = tuple(replace(one, split=names[place % 4]) for place, one in enumerate(version.pictures))  # type: ignore[arg-type]
    return replace(version, pictures=pictures)


def test_a_whole_loop(tmp_path: Path) -> None:
    version = split(open_data(class_folders(tmp_path / "stripes")))
    told: list[dict[str, Any]] = []
    trained = train(
        small_config(tmp_path / "stripes"),
        version,
        tmp_path / "model",
        report=lambda values: told.append(dict(values)),
        world=SoloWorld(CPU),
    )
    results = json.loads((tmp_path / "model" / "results.json").read_text())
    # Sixteen pictures teach little: one of the eight may be judged wrongly, but by every path alike.
    assert results["metrics"]["accuracy"] >= 0.85
    assert results["results"]["confusion"]["labels"] == ["across", "down"]
    assert results["export"]["file"] == "model.onnx"
    assert results["export"]["largest_difference"] < 1e-4
    losses = [one["loss"] for one in told if "loss" in one]
    assert losses[-1] < losses[0]
    assert json.loads((tmp_path / "model" / "examples" / "examples.json").read_text())["pictures"]
    card = read_card(tmp_path / "model" / "model.onnx")
    assert (card.task, card.labels) == ("classify", ("across", "down"))

    # What is served, what torch computes and what was judged agree.
    by_onnx, by_torch = Predictor(trained.folder), Predictor(trained.folder, device="cpu")
    test = [one for one in version.pictures if one.split == "test"]
    answers = by_onnx.predict([one.path for one in test])
    assert [one.category for one in answers] == [
        one.category for one in by_torch.predict([one.path for one in test])
    ]
    right = sum(answer.category == one.category for answer, one in zip(answers, test, strict=True))
    assert right / len(test) == results["metrics"]["accuracy"]
    heat = by_torch.predict([test[0].path], heat=True)[0].heat
    assert heat is not None
    assert heat.shape == (32, 40)
    assert evaluate_folder(trained.folder, version).figures["accuracy"] == results["metrics"]["accuracy"]

    # It labels what nobody has.
    from dataclasses import replace

    bare = replace(version, pictures=tuple(replace(one, category=None) for one in version.pictures))
    labelled = [one.applied() for one in autolabel(by_onnx, bare, threshold=0.5)]
    truth = {one.id: one.category for one in version.pictures}
    assert np.mean([one.category == truth[one.id] for one in labelled]) > 0.85
    assert all(one.category_confidence is not None for one in labelled)

    archive = write_zip(trained.folder, tmp_path / "model.zip")
    assert read_zip(archive, tmp_path / "again").classes == ("across", "down")


def squares(count: int = 10) -> list[tuple[np.ndarray[Any, Any], list[tuple[int, int, int, int]]]]:
    generator = np.random.default_rng(1)
    made = []
    for _ in range(count):
        picture = np.full((96, 96, 3), 40, np.uint8)
        boxes = []
        for _ in range(2):
            x, y = generator.integers(4, 60, 2)
            picture[y : y + 26, x : x + 26] = (220, 200, 60)
            boxes.append((int(x), int(y), int(x) + 26, int(y) + 26))
        made.append((picture, boxes))
    return made


def corners(box: tuple[int, int, int, int]) -> tuple[tuple[float, float], ...]:
    x0, y0, x1, y1 = box
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)


def boxed_version(folder: Path) -> DatasetVersion:
    folder.mkdir()
    pictures = []
    for number, (pixels, boxes) in enumerate(squares()):
        cv2.imwrite(str(folder / f"{number}.png"), pixels)
        shapes = tuple(LabelledShape(label="square", box=box, polygons=(corners(box),)) for box in boxes)
        pictures.append(
            LabelledPicture(
                id=str(number), name=f"{number}.png", path=folder / f"{number}.png", width=96, height=96, shapes=shapes,
                split="test" if number < 2 else "train",
            )
        )  # fmt: skip
    return DatasetVersion(name="squares", number=0, digest="", pictures=tuple(pictures), labels=("square",))


@pytest.mark.parametrize("task", ["detection", "segmentation"])
def test_a_detector_learns(tmp_path: Path, task: str) -> None:
    version = boxed_version(tmp_path / "squares")
    config = VisionConfig(
        data="squares",
        task=task,  # type: ignore[arg-type]
        model=ModelConfig(name="detector-fast", pretrained=False),
        size=96,
        batch=4,
        schedule=ScheduleConfig(epochs=3),
    )
    told: list[float] = []
    trained = train(
        config,
        version,
        tmp_path / "model",
        report=lambda values: told.append(values.get("loss", told[-1] if told else 0.0)),
        world=SoloWorld(CPU),
        export=False,
    )
    assert told[-1] < told[0]
    assert set(trained.results["metrics"]) == {"map50", "map50_95"}
    found = Predictor(trained.folder, device="cpu").predict([version.pictures[0].path], confidence=0.01)[0]
    for shape in found.shapes:
        assert 0 <= shape.box[0] < shape.box[2] <= 96
        assert shape.model == "squares"


@pytest.mark.long
def test_a_detector_is_exported(tmp_path: Path) -> None:
    from weft.vision.export.onnx import export_onnx

    config = VisionConfig(
        task="segmentation", model=ModelConfig(name="detector-fast", pretrained=False), size=(96, 128)
    )
    model = build_model(config.network, 2, masks=True).eval()
    assert export_onnx(model, config, ("a", "b"), tmp_path / "d.onnx") < 1e-4
    assert read_card(tmp_path / "d.onnx").task == "detect"


def test_anomalies_are_told_from_what_is_normal(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pictures = []
    for number in range(14):
        pixels = np.clip(generator.normal(120, 6, (64, 64, 3)), 0, 255).astype(np.uint8)
        bad = number >= 11
        if bad:
            cv2.line(pixels, (5, 5), (60, 50), (250, 20, 20), 4)
        path = tmp_path / f"{number}.png"
        cv2.imwrite(str(path), pixels)
        pictures.append(
            LabelledPicture(
                id=str(number), name=path.name, path=path, width=64, height=64,
                category="scratch" if bad else "normal", split="test" if number >= 9 else "train",
            )
        )  # fmt: skip
    version = DatasetVersion(
        name="plates", number=0, digest="", pictures=tuple(pictures), categories=("normal", "scratch")
    )
    trained = train(
        VisionConfig(data="x", task="anomaly", size=64),
        version,
        tmp_path / "model",
        report=lambda values: None,
    )
    assert trained.results["metrics"]["auroc"] == 1
    assert trained.results["pictures"] == {"train": 7, "test": 5}
    assert trained.results["score"] == {
        "name": "accuracy",
        "value": trained.results["metrics"]["accuracy"],
    }
    answer = Predictor(trained.folder).predict([pictures[-1].path], heat=True)[0]
    assert answer.category == "anomaly"
    assert answer.anomaly is not None
    assert answer.anomaly > 1
    assert answer.heat is not None
    assert trained.results["export"]["file"] == "model.onnx"  # what a service deploys
    assert read_card(trained.folder / "model.onnx").labels == ("normal", "anomaly")
    plain = Predictor(trained.folder, device="cpu").predict([pictures[-1].path])[0]
    assert plain.anomaly == pytest.approx(answer.anomaly, rel=1e-3)
    assert plain.scores[0][0] == "anomaly"
    assert plain.scores[0][1] == pytest.approx(answer.scores[0][1], abs=1e-3)


def test_anomalies_of_every_split_are_judged() -> None:
    splits: tuple[Split, ...] = ("train", "test")
    pictures = [
        LabelledPicture(
            id=f"{kind}-{of}", name="a.png", path=Path("a.png"), width=8, height=8, category=kind, split=of
        )
        for kind in ("good", "hole")
        for of in splits
    ]
    assert [one.id for one in judged_pictures(pictures)] == ["good-test", "hole-train", "hole-test"]


def test_weights_of_imagenet_fit_our_definition() -> None:
    model: Any = build_model(ModelConfig(name="efficientnet-lite0", pretrained=True), 3)
    assert len([name for name in imagenet_weights() if name.endswith(".weight")]) == 98
    with torch.no_grad():
        features = model.eval().features(torch.full((1, 3, 64, 64), 128.0))
    assert features.shape == (1, 1280)
    assert torch.isfinite(features).all()


def test_rates_fall_towards_the_input_and_frozen_parts_stay() -> None:
    model = build_model(ModelConfig(name="resnet-18"), 3)
    groups = parameter_groups(
        OptimizerConfig(lr=1.0, weight_decay=0.1, layer_decay=0.5, backbone_scale=0.5), model
    )
    rates = sorted({group["lr"] for group in groups})
    assert rates[-1] == 1.0
    assert rates[-2] == 0.5
    assert rates[0] == pytest.approx(0.5 * 0.5**8)
    assert all(
        group["weight_decay"] == 0 for group in groups if all(one.ndim == 1 for one in group["params"])
    )
    freeze(VisionConfig(model=ModelConfig(name="resnet-18", freeze="all")), model)
    assert [name for name, one in model.named_parameters() if one.requires_grad] == [
        "head.weight",
        "head.bias",
    ]


def test_a_checkpoint_is_taken_up(tmp_path: Path) -> None:
    def made() -> Checkpoint:
        model = torch.nn.Linear(2, 2)
        averaged = AveragedWeights(model, 0.9)
        return Checkpoint(model, torch.optim.AdamW(model.parameters()), averaged, LoopResult(model))

    one, other = made(), made()
    one.result.history.append({"step": 3, "best": True})
    one.result.training_s, one.result.best = 12.5, 0.75
    one.result.best_state = {"weight": torch.ones(2, 2)}
    one.averaged.steps = 40
    write_checkpoint(tmp_path, one, 4)
    assert read_checkpoint(tmp_path, other) == 4
    assert torch.equal(one.model.weight, other.model.weight)  # type: ignore[arg-type]
    assert other.result.history == [{"step": 3, "best": True}]
    assert (other.result.training_s, other.result.best, other.averaged.steps) == (12.5, 0.75, 40)
    assert torch.equal(other.result.best_state["weight"], torch.ones(2, 2))
    assert read_checkpoint(tmp_path / "none", other) == 0


def test_a_training_in_two_parts_keeps_its_seconds_and_its_best(tmp_path: Path) -> None:
    """A training that is cut off goes on from its checkpoint: time limits and the best state are those of the whole."""
    version = split(open_data(class_folders(tmp_path / "stripes", 12)))
    config = replace(small_config(tmp_path / "stripes"), schedule=ScheduleConfig(epochs=3, evaluate_every=1))
    folder = tmp_path / "model"

    def cut(values: Any) -> None:
        if values.get("epoch", 0) == 2 and "total" not in values:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.vision.training.loop.CHECKPOINT_EVERY_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            train(config, version, folder, report=cut, world=SoloWorld(CPU), export=False)
    kept = torch.load(folder / "checkpoint.pt", weights_only=True)
    assert kept["training_s"] > 0
    assert kept["best"] is not None
    trained = train(config, version, folder, report=lambda values: None, world=SoloWorld(CPU), export=False)
    assert trained.results["training_s"] > kept["training_s"]
    assert len(trained.results["history"]) == 3
    assert trained.results["epochs"] == 3


def test_logits_are_averaged_over_views() -> None:
    """Weights of views: half for the picture, a quarter for each move; each with its mirror image."""
    pixels = torch.arange(2 * 3 * 5 * 6, dtype=torch.float32).reshape(2, 3, 5, 6)

    class Corner(torch.nn.Module):
        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            return pixels[:, :, 0, 0]

    def at(row: int, column: int) -> torch.Tensor:
        return pixels[:, :, row, column]

    found = view_logits(Corner(), pixels, flips=False, shift=0)
    assert torch.equal(found, at(0, 0))
    found = view_logits(Corner(), pixels, flips=False, shift=1)
    assert torch.equal(
        found, at(0, 0) / 2 + (at(1, 1) + at(1, 1)) / 4
    )  # moved in at the edge: the reflection
    found = view_logits(Corner(), pixels, flips=True, shift=0)
    assert torch.equal(found, (at(0, 0) + at(0, 5)) / 2)


def test_a_stop_keeps_the_best(tmp_path: Path) -> None:
    version = split(open_data(class_folders(tmp_path / "stripes", 12)))
    folder = tmp_path / "model"

    def stop_soon(values: Any) -> None:
        if values.get("step", 0) >= 2:
            (folder / "stop").touch()

    trained = train(
        small_config(tmp_path / "stripes", 500),
        version,
        folder,
        report=stop_soon,
        world=SoloWorld(CPU),
        export=False,
    )
    assert trained.results["stopped"] == "asked to stop"
    assert trained.results["epochs"] < 500


def test_a_film_comes_out_captioned(tmp_path: Path) -> None:
    import av

    film = tmp_path / "film.mp4"
    with av.open(str(film), "w") as made:
        stream: Any = made.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for number in range(6):
            frame = av.VideoFrame.from_ndarray(np.full((48, 64, 3), number * 20, np.uint8), format="rgb24")
            made.mux(stream.encode(frame))
        made.mux(stream.encode())

    class Fixed:
        def predict(self, pictures: Any, *, confidence: float | None = None) -> Any:
            from weft.vision.inference.predictor import Prediction

            return [Prediction(shapes=(LabelledShape(label="a", box=(5, 20, 40, 40), confidence=0.9),))]

    found = caption_film(Fixed(), film, tmp_path / "out.mp4", every=2)  # type: ignore[arg-type]
    assert len(found) == 3
    with av.open(str(tmp_path / "out.mp4")) as read:
        assert read.streams.video[0].codec_context.name == "h264"
        assert sum(1 for _ in read.decode(video=0)) == 6


def test_a_film_of_a_telephone_is_looked_at_upright(tmp_path: Path) -> None:
    import av

    (tmp_path / "film.mp4").write_bytes(turned_film(film_bytes(seconds=1, width=64, height=48)))
    seen: list[tuple[int, ...]] = []

    class Watching:
        def predict(self, pictures: Any, *, confidence: float | None = None) -> Any:
            from weft.vision.inference.predictor import Prediction

            seen.extend(one.shape for one in pictures)
            return [Prediction()]

    caption_film(Watching(), tmp_path / "film.mp4", tmp_path / "out.mp4")  # type: ignore[arg-type]
    assert set(seen) == {(64, 48, 3)}
    with av.open(str(tmp_path / "out.mp4")) as read:
        stream = read.streams.video[0]
        assert (stream.width, stream.height) == (48, 64)


def test_frames_of_a_film_are_labelled(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from weft.vision.inference.predictor import Prediction

    (tmp_path / "film.mp4").write_bytes(film_bytes(seconds=2))
    (tmp_path / "frames").mkdir()
    shape = LabelledShape(label="a", box=(5, 20, 40, 40), confidence=0.9)
    predictor = SimpleNamespace(
        config=SimpleNamespace(task="detection"),
        threshold=0.5,
        predict=lambda pictures, confidence: [Prediction(shapes=(shape,)) for _ in pictures],
    )
    found = autolabel_film(predictor, tmp_path / "film.mp4", tmp_path / "frames", every_s=0.5)
    assert [one.time_s for one in found.pictures] == pytest.approx([0, 0.4, 1.0, 1.4])
    assert {one.film for one in found.pictures} == {"film.mp4"}
    assert all(one.shapes == (shape,) for one in found.pictures)
    with pytest.raises(PictureError, match="ask for fewer"):
        autolabel_film(predictor, tmp_path / "film.mp4", tmp_path, every_s=1e-9)


def test_states_that_score_alike_are_told_apart_by_their_loss(tmp_path: Path) -> None:
    """Two pictures are soon all right: the first such state has learned little, and may judge others either way."""
    generator = np.random.default_rng(0)
    for name, colour in (("red", (200, 40, 30)), ("blue", (30, 60, 200))):
        for number in range(6):
            home = tmp_path / "data" / ("val" if number == 0 else "train") / name
            home.mkdir(parents=True, exist_ok=True)
            pixels = np.clip(np.array(colour) + generator.integers(-25, 25, (48, 64, 3)), 0, 255)
            cv2.imwrite(str(home / f"{number}.png"), pixels[:, :, ::-1].astype(np.uint8))
    version = open_data(tmp_path / "data")
    config = VisionConfig(
        data="x", task="classification", model="small", size=32, batch=4, schedule=ScheduleConfig(epochs=20)
    )
    trained = train(config, version, tmp_path / "model", report=lambda values: None, export=False)
    history = trained.results["history"]
    assert sum(one["val_accuracy"] == 1 for one in history) > 1
    best = [one for one in history if one.get("best")][-1]
    assert best["val_loss"] == min(one["val_loss"] for one in history if one["val_accuracy"] == 1)
    for colour, name in (((30, 60, 200), "blue"), ((200, 40, 30), "red")):
        noise = generator.integers(-25, 25, (48, 64, 3))
        shown = np.clip(np.array(colour) + noise, 0, 255).astype(np.uint8)
        (answer,) = Predictor(trained.folder, device="cpu").predict([shown])
        assert answer.category == name
        assert answer.scores[0][1] > 0.7


def test_early_stopping_counts_better_scores_alone() -> None:
    history = [{"best": True, "better": True}, {"best": True, "better": False}, {}, {"better": False}]
    assert (_since(history, "better"), _since(history, "best"), _since([], "best")) == (3, 2, 0)
