"""Answers of a trained model for pictures: categories with their probabilities, or objects.

The network runs by ONNX Runtime where `model.onnx` and the package are there, else by torch; both get their input from
the code that a server uses, so that answers are the same everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from weft.errors import UsageError
from weft.vision.config.schema import VisionConfig
from weft.vision.evaluation.boxes import OVERLAP, best_boxes
from weft.vision.records import LabelledShape

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Prediction:
    """The answer for one picture."""

    scores: tuple[tuple[str, float], ...] = ()  # categories, the most probable first
    shapes: tuple[LabelledShape, ...] = ()  # objects, the surest first
    anomaly: float | None = None  # the picture's distance from what is normal, in times of the threshold
    heat: Array | None = None  # height x width of 0..1: where the answer came from

    @property
    def category(self) -> str | None:
        return self.scores[0][0] if self.scores else None


@dataclass(frozen=True)
class ModelFolder:
    """The files of a trained model, read."""

    folder: Path
    config: VisionConfig
    classes: tuple[str, ...]
    results: dict[str, Any]

    @property
    def name(self) -> str:
        return self.config.name or self.folder.name


def read_folder(folder: str | Path) -> ModelFolder:
    """Return what a model folder says of itself."""
    path = Path(folder)
    try:
        config = msgspec.json.decode((path / "config.json").read_bytes(), type=VisionConfig)
        results = json.loads((path / "results.json").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} must be a model folder of `weft vision train`, got none that can be read: {error}"
        ) from None
    return ModelFolder(path, config, tuple(results["classes"]), results)


class PicturePredictor(Protocol):
    """A model that is asked for pictures: one of ours, or a user's own code."""

    classes: tuple[str, ...]

    @property
    def config(self) -> VisionConfig: ...

    @property
    def threshold(self) -> float: ...

    def predict(
        self, pictures: Iterable[Path | bytes | Array], *, confidence: float | None = None
    ) -> list[Prediction]: ...


class Predictor:
    """A loaded model. It may be asked by one thread at a time."""

    def __init__(self, folder: str | Path, *, device: str | None = None, threads: int | None = None) -> None:
        self.model = read_folder(folder)
        self.config: VisionConfig = self.model.config
        self.classes: tuple[str, ...] = self.model.classes
        self._name = self.model.name
        self._net: Any = None
        self._session: Any = None
        file = self.model.folder / "model.onnx"
        if device is None and file.is_file():
            self._session = _session(file, threads)
        if self._session is None:
            self._net, self._device = load_network(self.model, device)

    def close(self) -> None:
        """Let go of the model; nothing of it outlives the object."""
        self._net = self._session = None

    @property
    def threshold(self) -> float:
        """The confidence with the best balance of precision and recall on the test pictures."""
        return float(self.model.results.get("results", {}).get("threshold", 0.5))

    def predict(
        self, pictures: Iterable[Path | bytes | Array], *, confidence: float | None = None, heat: bool = False
    ) -> list[Prediction]:
        """Return an answer for each picture: a path, encoded bytes, or decoded pixels (height x width x 3, RGB)."""
        least = self.threshold if confidence is None else confidence
        return [self._answer(one, least, heat=heat) for one in pictures]

    def _fitted(self, picture: Path | bytes | Array) -> tuple[Array, Any]:
        from weft.vision.pictures.fitting import fitted_row
        from weft.vision.pictures.rules import picture_rules

        return fitted_row(picture, picture_rules(self.config))

    def _answer(self, picture: Path | bytes | Array, least: float, *, heat: bool) -> Prediction:
        row, geometry = self._fitted(picture)
        outputs = self._outputs(row)
        if self.config.task == "anomaly":
            score = float(outputs[2][0])
            spots = _placed(_enlarged(np.clip(outputs[3][0] / 2, 0, 1), row.shape[-2:]), geometry)
            names = ("anomaly", "normal") if score > 1 else ("normal", "anomaly")
            sure = score / (1 + score)
            high, low = (sure, 1 - sure) if score > 1 else (1 - sure, sure)
            return Prediction(
                ((names[0], high), (names[1], low)), anomaly=score, heat=spots if heat else None
            )
        if self.config.task in ("detection", "segmentation"):
            return Prediction(shapes=self._shapes(outputs, geometry, least))
        order = np.argsort(-outputs[0][0], kind="stable")
        scores = tuple((self.classes[place], float(outputs[0][0][place])) for place in order)
        shown = self._heat(row, geometry, int(order[0])) if heat else None
        return Prediction(scores=scores, heat=shown)

    def _outputs(self, row: Array) -> list[Array]:
        if self._session is not None:
            found: list[Array] = self._session.run(None, {self._session.get_inputs()[0].name: row})
            return found
        import torch

        with torch.no_grad():
            outputs = self._net(torch.from_numpy(row).to(self._device))
        parts = outputs.values() if isinstance(outputs, dict) else outputs
        return [one.float().cpu().numpy() for one in parts]

    def _shapes(self, outputs: Sequence[Array], geometry: Any, least: float) -> tuple[LabelledShape, ...]:
        best = best_boxes(outputs[0][0], outputs[1][0], confidence=max(least, 0.01), overlap=OVERLAP)
        shift, scale = np.array([geometry.left, geometry.top]), np.array([geometry.across, geometry.down])
        corners = (best.boxes.reshape(-1, 2) - shift) / scale
        boxes = np.clip(corners, 0, [geometry.width, geometry.height]).reshape(-1, 4)
        polygons: list[tuple[tuple[tuple[float, float], ...], ...]] = [()] * len(boxes)
        if len(outputs) > 2:
            from weft.serve.server.pictures.outlines import TOLERANCE_CELLS, cut_masks, rings_of_mask

            masks = cut_masks(outputs[2][0][best.cells], outputs[3][0], best.boxes)
            for place, mask in enumerate(masks):
                rings = rings_of_mask(mask, TOLERANCE_CELLS)
                polygons[place] = tuple(
                    tuple(
                        (
                            float(np.clip((x * 4 - geometry.left) / geometry.across, 0, geometry.width)),
                            float(np.clip((y * 4 - geometry.top) / geometry.down, 0, geometry.height)),
                        )
                        for x, y in ring
                    )
                    for ring in rings
                )
        found = [
            LabelledShape(
                label=self.classes[int(number)],
                box=(float(box[0]), float(box[1]), float(box[2]), float(box[3])),
                polygons=rings,
                confidence=float(score),
                model=self._name,
            )
            for box, score, number, rings in zip(boxes, best.scores, best.classes, polygons, strict=True)
            if box[2] > box[0] and box[3] > box[1]
        ]
        return tuple(_around(one) for one in found)

    def heat_map(self, picture: Path | bytes | Array, number: int) -> Array:
        """Return where a class was seen, as height x width of 0..1: the last feature map, weighed by the class."""
        return self._heat(*self._fitted(picture), number)

    def _heat(self, row: Array, geometry: Any, number: int) -> Array:
        import torch

        if self._net is None:
            self._net, self._device = load_network(self.model, None)
        inner = getattr(self._net, "model", self._net)
        if not hasattr(inner, "class_maps"):
            raise UsageError(
                f"a heat map must be asked of a classifier of ours, got {self.config.network.name}"
            )
        with torch.no_grad():
            small = inner.class_maps(torch.from_numpy(row).to(self._device))[0, number].clamp(min=0)
            small = small / small.max().clamp(min=1e-9)
            size = row.shape[-2:]
            large = torch.nn.functional.interpolate(
                small[None, None], size=size, mode="bilinear", align_corners=False
            )
        return _placed(large[0, 0].cpu().numpy(), geometry)


def _placed(heat: Array, geometry: Any) -> Array:
    """Return a map of the model's input over the whole picture; what was cut off has no heat."""
    xs = ((np.arange(geometry.width) + 0.5) * geometry.across + geometry.left).astype(int)
    ys = ((np.arange(geometry.height) + 0.5) * geometry.down + geometry.top).astype(int)
    inside = ((ys >= 0) & (ys < heat.shape[0]))[:, None] & ((xs >= 0) & (xs < heat.shape[1]))[None]
    shown = heat[np.clip(ys, 0, heat.shape[0] - 1)][:, np.clip(xs, 0, heat.shape[1] - 1)]
    return np.where(inside, shown, 0.0).astype(np.float32)


def _enlarged(heat: Array, size: tuple[int, ...]) -> Array:
    """Return a map of patches at the size of the input, by the nearest."""
    ys = np.arange(size[0]) * heat.shape[0] // size[0]
    xs = np.arange(size[1]) * heat.shape[1] // size[1]
    return np.asarray(heat[ys][:, xs])


def _around(shape: LabelledShape) -> LabelledShape:
    """Return a shape whose box lies around its polygons, where it has some."""
    points = [point for ring in shape.polygons for point in ring]
    if not points:
        return shape
    xs, ys = [x for x, _ in points], [y for _, y in points]
    box = (min(xs), min(ys), max(xs), max(ys))
    return replace(shape, box=box) if box[0] < box[2] and box[1] < box[3] else replace(shape, polygons=())


def _session(file: Path, threads: int | None) -> Any:
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])


def load_network(model: ModelFolder, device: str | None = None) -> tuple[Any, Any]:
    """Return the network in torch, as it is served, and its device."""
    import torch
    from safetensors.torch import load_file

    from weft.vision.export.onnx import served_module
    from weft.vision.models.building import build_model

    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if model.config.task == "anomaly":
        from weft.vision.models.anomaly import AnomalyDetector

        state = load_file(model.folder / "weights.safetensors")
        detector = AnomalyDetector(len(state["memory"]))
        detector.load_state_dict(state)
        return served_module(detector, model.config).to(place).eval(), place
    masks = model.config.task == "segmentation"
    net = build_model(model.config.network, len(model.classes), masks=masks, load=False)
    net.load_state_dict(load_file(model.folder / "weights.safetensors"))
    return served_module(net, model.config).to(place).eval(), place
