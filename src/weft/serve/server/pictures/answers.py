"""A model's outputs as a person reads them: classes with their probabilities, or boxes with labels.

Pure: arrays in, plain data out.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from weft.serve.card import Card
from weft.serve.server.pictures.outlines import TOLERANCE_CELLS, Ring, cut_masks, rings_of_mask
from weft.serve.server.protocols.tensors import BF16, NAMES, REALS, Array
from weft.serve.server.refusal import RefusalError

if TYPE_CHECKING:
    from weft.serve.server.pictures.pictures import Geometry

HEAT_SIDE = 256  # pixels of the longer side of a heat map


def classes(outputs: Mapping[str, Array], card: Card, top: int = 5) -> list[dict[str, Any]]:
    """The most probable classes of the first row, best first."""
    scores = _scores(outputs, card)[0]
    if scores.shape[-1] == 1:  # one number for two classes
        scores = np.concatenate([1 - scores, scores])
    best = np.argsort(-scores, kind="stable")[:top]
    return [{"label": _label(card, int(place)), "confidence": float(scores[place])} for place in best]


def detections(
    outputs: Mapping[str, Array],
    card: Card,
    geometry: Geometry,
    *,
    confidence: float = 0.25,
    overlap: float = 0.5,
    most: int = 100,
) -> list[dict[str, Any]]:
    """Boxes of the first row, best first, those that cover a better one of their label left out.

    The model gives `boxes`, rows x n x 4 (left, top, right, bottom, in pixels of its input), and `scores`,
    rows x n x classes. One that also gives `coefficients`, rows x n x k, and `prototypes`, rows x k x height x width
    over its input, is answered with polygons: masks are where prototypes, summed by coefficients, are positive.
    """
    if not {"boxes", "scores"} <= set(outputs):
        raise RefusalError(
            400, f"a model that detects must have the outputs boxes and scores, got {', '.join(outputs)}"
        )
    boxes, scores = outputs["boxes"][0].astype(np.float32), outputs["scores"][0].astype(np.float32)
    labels, certain = scores.argmax(-1), scores.max(-1)
    kept = np.flatnonzero(certain >= confidence)
    order = kept[np.argsort(-certain[kept], kind="stable")]
    found: list[int] = []
    while len(order) and len(found) < most:
        best, order = int(order[0]), order[1:]
        found.append(best)
        hidden = (labels[order] == labels[best]) & (_overlaps(boxes[best], boxes[order]) > overlap)
        order = order[~hidden]
    answer = [_detection(card, geometry, boxes[one], int(labels[one]), float(certain[one])) for one in found]
    if found and {"coefficients", "prototypes"} <= set(outputs) and card.picture is not None:
        prototypes = outputs["prototypes"][0].astype(np.float32)
        cell = card.picture.width / prototypes.shape[-1]
        masks = cut_masks(
            outputs["coefficients"][0][found].astype(np.float32), prototypes, boxes[found], cell
        )
        for one, mask in zip(answer, masks, strict=True):
            one["polygons"] = [_placed(ring, geometry, cell) for ring in rings_of_mask(mask, TOLERANCE_CELLS)]
    return answer


def _placed(ring: Ring, geometry: Geometry, cell: float) -> list[tuple[float, float]]:
    """Return a ring in cells of the prototypes as points of the picture, to a hundredth of a pixel."""
    return [
        (
            round(min(max((x * cell - geometry.left) / geometry.across, 0.0), float(geometry.width)), 2),
            round(min(max((y * cell - geometry.top) / geometry.down, 0.0), float(geometry.height)), 2),
        )
        for x, y in ring
    ]


def heat_map(outputs: Mapping[str, Array], card: Card, geometry: Geometry, label: str = "") -> str | None:
    """Return where a class was seen as a PNG in a data URL, to be laid over the whole picture; None: not told.

    The model gives `heat`, rows x classes x height x width of 0..1 over its input. The class is the most probable one,
    or the one of a label. The PNG has the picture's proportions, at most 256 pixels a side, and is clear where nothing
    was seen.
    """
    heat = outputs.get("heat")
    if heat is None or heat.ndim != 4 or card.picture is None:
        return None
    if label and label not in card.labels:
        raise RefusalError(400, f"heat must be true or one of the model's labels, got {label[:80]!r}")
    place = card.labels.index(label) if label else int(_scores(outputs, card)[0].argmax())
    shrink = min(1.0, HEAT_SIDE / max(geometry.width, geometry.height))
    width, height = max(1, round(geometry.width * shrink)), max(1, round(geometry.height * shrink))
    cells = heat[0, place].astype(np.float32)
    # The input's cell under each pixel of the PNG, bilinear; what the model was not shown stays clear.
    xs = ((np.arange(width) + 0.5) / shrink * geometry.across + geometry.left) / card.picture.width
    ys = ((np.arange(height) + 0.5) / shrink * geometry.down + geometry.top) / card.picture.height
    across = np.broadcast_to(xs * cells.shape[1] - 0.5, (height, width)).astype(np.float32)
    down = np.broadcast_to((ys * cells.shape[0] - 0.5)[:, None], (height, width)).astype(np.float32)
    spread = cv2.remap(cells, across, down, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    shown = ((xs >= 0) & (xs <= 1))[None] & ((ys >= 0) & (ys <= 1))[:, None]
    levels = np.where(shown, np.clip(spread, 0, 1) * 255, 0).astype(np.uint8)
    pixels = np.dstack([cv2.applyColorMap(levels, cv2.COLORMAP_TURBO), levels // 4 * 3])
    done, encoded = cv2.imencode(".png", pixels)
    assert done
    return "data:image/png;base64," + base64.b64encode(encoded.tobytes()).decode()


def plain(outputs: Mapping[str, Array]) -> dict[str, Any]:
    return {name: array.tolist() for name, array in outputs.items()}


def _detection(
    card: Card, geometry: Geometry, box: Sequence[float] | Array, label: int, confidence: float
) -> dict[str, Any]:
    xmin, ymin = geometry.back(float(box[0]), float(box[1]))
    xmax, ymax = geometry.back(float(box[2]), float(box[3]))
    return {
        "label": _label(card, label),
        "confidence": confidence,
        "xmin": xmin,
        "ymin": ymin,
        "xmax": xmax,
        "ymax": ymax,
    }


def _scores(outputs: Mapping[str, Array], card: Card) -> Array:
    """The output that holds a number a class, as probabilities."""
    found = [array for array in outputs.values() if NAMES.get(array.dtype) in REALS and array.ndim >= 2]
    fitting = [array for array in found if array.shape[-1] == len(card.labels)] or found
    if not fitting:
        raise RefusalError(400, "a model that classifies must have an output with a number a class, got none")
    scores = fitting[0].reshape(len(fitting[0]), -1).astype(np.float64)
    rounded = 1e-2 if fitting[0].dtype == BF16 else 1e-3  # how far from 1 probabilities may add up to
    if scores.shape[-1] == 1:
        inside = ((scores >= 0) & (scores <= 1)).all()
        return scores if inside else 1 / (1 + np.exp(-scores))
    if (scores >= 0).all() and np.allclose(scores.sum(-1), 1, atol=rounded):
        return scores
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    shared = np.prod(np.clip(high - low, 0, None), axis=-1)
    area = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=-1)
    return np.asarray(shared / np.maximum(area - shared, 1e-9))


def _label(card: Card, place: int) -> str:
    return card.labels[place] if place < len(card.labels) else str(place)
