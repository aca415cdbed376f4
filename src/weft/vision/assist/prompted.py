"""The door for a model that segments by a prompt, such as a segment-anything model exported to ONNX.

The file must have these inputs, as the common exports of such models with their encoder inside have them:

    image          float32, 1 x 3 x H x W, RGB from 0 to 255; H and W fixed, or free
    point_coords   float32, 1 x N x 2, pixels of that input; a box is its two corners
    point_labels   float32, 1 x N; 1: inside, 2 and 3: left upper and right lower corner of a box

and as its first output masks, float32, 1 x M x h x w, positive inside; the second, if there is one, their scores.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np

from weft.errors import ModelError
from weft.vision.assist.outlines import Rings
from weft.vision.geometry.polygons import polygons_of_mask
from weft.vision.pictures.decoding import Pixels
from weft.vision.records import Box, Point

_INPUTS = ("image", "point_coords", "point_labels")
_FREE_SIDE = 1024  # pixels, of a model that takes any size
_SMOOTH_PX = 1.0


class ModelAssistant:
    """An ONNX model that finds the outline of what a box or a point means."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        try:
            self._session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:
            raise ModelError(f"{path} must be an ONNX model that segments: {str(error)[:200]}") from None
        names = [one.name for one in self._session.get_inputs()]
        if sorted(names) != sorted(_INPUTS):
            raise ModelError(
                f"{path} must have the inputs {', '.join(_INPUTS)}, got {', '.join(names)}; export it again"
            )
        shape = next(one.shape for one in self._session.get_inputs() if one.name == "image")
        self._height = shape[2] if isinstance(shape[2], int) else _FREE_SIDE
        self._width = shape[3] if isinstance(shape[3], int) else _FREE_SIDE

    def outline(self, pixels: Pixels, *, box: Box | None = None, point: Point | None = None) -> Rings:
        """Return the outline of what is in a box, or at a point."""
        height, width = pixels.shape[:2]
        across, down = self._width / width, self._height / height
        resized = np.asarray(cv2.resize(pixels, (self._width, self._height)), np.float32)
        if box is not None:
            points, labels = [(box[0], box[1]), (box[2], box[3])], [2.0, 3.0]
        elif point is not None:
            points, labels = [point], [1.0]
        else:
            raise ModelError("a model must be given a box or a point, got none; draw one")
        given = {
            "image": np.ascontiguousarray(resized.transpose(2, 0, 1)[None]),
            "point_coords": np.array([[(x * across, y * down) for x, y in points]], np.float32),
            "point_labels": np.array([labels], np.float32),
        }
        masks, *rest = self._session.run(None, given)
        best = int(np.argmax(rest[0].ravel())) if rest and rest[0].size == masks.shape[1] else 0
        whole = cv2.resize(masks[0, best], (width, height), interpolation=cv2.INTER_LINEAR)
        return polygons_of_mask((np.asarray(whole) > 0).astype(np.uint8), _SMOOTH_PX)
