"""Labels of pictures as tensors: class numbers, or boxes and masks that follow their picture's map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.vision.records import LabelledPicture, LabelledShape
from weft.vision.training.feeding.affines import inverse, moved_boxes, moved_points

Array = np.ndarray[Any, Any]
MASK_STRIDE = 4  # pixels of the input per pixel of a target mask


@dataclass(frozen=True)
class BoxTargets:
    """Objects of a batch: rows x most objects of one picture; class -1 fills up."""

    boxes: Tensor  # xmin, ymin, xmax, ymax, in pixels of the input
    classes: Tensor
    masks: Tensor | None = None  # rows x objects x height/4 x width/4

    def to(self, device: torch.device) -> BoxTargets:
        masks = None if self.masks is None else self.masks.to(device, non_blocking=True)
        return BoxTargets(
            self.boxes.to(device, non_blocking=True), self.classes.to(device, non_blocking=True), masks
        )


@dataclass(frozen=True)
class PictureObjects:
    """Objects of one picture in its own pixels, ready to be moved."""

    boxes: Array  # n x 4
    classes: Array  # n
    shapes: tuple[LabelledShape, ...]


def objects_of(picture: LabelledPicture, labels: Sequence[str]) -> PictureObjects:
    numbers = {label: number for number, label in enumerate(labels)}
    shapes = tuple(shape for shape in picture.shapes if shape.label in numbers)
    return PictureObjects(
        np.array([shape.box for shape in shapes], float).reshape(-1, 4),
        np.array([numbers[shape.label] for shape in shapes], np.int64),
        shapes,
    )


def box_targets(
    objects: Sequence[PictureObjects],
    maps: Array,
    out: tuple[int, int],
    *,
    masks: bool = False,
    hidden: bool = False,
) -> BoxTargets:
    """Return the targets of a batch after the maps of its pictures; with `hidden`, also of objects out of sight."""
    rows = []
    for one, matrix in zip(objects, maps, strict=True):
        boxes, seen = moved_boxes(one.boxes, matrix, out)
        seen = seen | hidden
        drawn = _masks(one, np.flatnonzero(seen), matrix, boxes, out) if masks else None
        rows.append((boxes[seen], one.classes[seen], drawn))
    most = max(1, max(len(classes) for _, classes, _ in rows))
    all_boxes = np.zeros((len(rows), most, 4), np.float32)
    all_classes = np.full((len(rows), most), -1, np.int64)
    quarter = (out[0] // MASK_STRIDE, out[1] // MASK_STRIDE)
    all_masks = np.zeros((len(rows), most, *quarter), np.uint8) if masks else None
    for row, (boxes, classes, drawn) in enumerate(rows):
        all_boxes[row, : len(boxes)], all_classes[row, : len(classes)] = boxes, classes
        if all_masks is not None and drawn is not None:
            all_masks[row, : len(drawn)] = drawn
    shown = None if all_masks is None else torch.from_numpy(all_masks)
    return BoxTargets(torch.from_numpy(all_boxes), torch.from_numpy(all_classes), shown)


def _masks(one: PictureObjects, seen: Array, matrix: Array, boxes: Array, out: tuple[int, int]) -> Array:
    """Draw each object's mask at a quarter of the sides; one that has only a box is its box."""
    import cv2

    size = (out[0] // MASK_STRIDE, out[1] // MASK_STRIDE)
    drawn = np.zeros((len(seen), *size), np.uint8)
    back = inverse(matrix)
    for place, number in enumerate(seen):
        shape = one.shapes[number]
        if shape.mask is not None:
            pixels = mask_pixels(shape)
            quarter = matrix.copy()
            quarter[:, :2] *= MASK_STRIDE
            from weft.vision.training.feeding.warping import warp_picture

            plane = warp_picture(np.ascontiguousarray(pixels), quarter, size, pad=True)
            drawn[place] = plane == 1
            continue
        rings = shape.polygons or (_corners(one.boxes[number]),)
        points = [
            np.round(moved_points(np.array(ring, float), back) / MASK_STRIDE).astype(np.int32)
            for ring in rings
        ]
        cv2.fillPoly(drawn[place], points, 1)
    return drawn


def mask_pixels(shape: LabelledShape) -> Array:
    """Return a painted mask as height x width of 0 and 1."""
    assert shape.mask is not None
    values = np.arange(len(shape.mask.counts)) % 2
    flat = np.repeat(values.astype(np.uint8), shape.mask.counts)
    return flat.reshape(shape.mask.width, shape.mask.height).T


def _corners(box: Array) -> tuple[tuple[float, float], ...]:
    x0, y0, x1, y1 = map(float, box)
    return (x0, y0), (x1, y0), (x1, y1), (x0, y1)
