"""Changes of pixels by OpenCV, as a plan says."""

from __future__ import annotations

import cv2
import numpy as np

from weft.vision.augment.planning import PictureChange
from weft.vision.pictures.decoding import Pixels


def apply_change(pixels: Pixels, change: PictureChange) -> Pixels:
    """Return a picture's pixels, RGB, changed as planned."""
    match change.kind:
        case "flip_left_right":
            return np.ascontiguousarray(pixels[:, ::-1])
        case "flip_top_bottom":
            return np.ascontiguousarray(pixels[::-1])
        case "crop":
            left, top = -round(change.to.c), -round(change.to.f)
            return np.ascontiguousarray(pixels[top : top + change.height, left : left + change.width])
        case "rotate":
            return _warped(pixels, change)
        case "blur":
            return np.asarray(cv2.GaussianBlur(pixels, (0, 0), change.amount), np.uint8)
        case "sharpen":
            soft = cv2.GaussianBlur(pixels, (0, 0), 1.5)
            return np.asarray(cv2.addWeighted(pixels, 1 + change.amount, soft, -change.amount, 0), np.uint8)
        case "noise":
            rng = np.random.default_rng(change.seed)
            noisy = pixels + rng.normal(0, change.amount, pixels.shape).astype(np.float32)
            return np.clip(np.rint(noisy), 0, 255).astype(np.uint8)
    return _coloured(pixels, change)


def _warped(pixels: Pixels, change: PictureChange) -> Pixels:
    """Turn a picture. OpenCV counts from the middles of pixels, maps from their corners: half a pixel apart."""
    to = change.to
    c = to.a * 0.5 + to.b * 0.5 + to.c - 0.5
    f = to.d * 0.5 + to.e * 0.5 + to.f - 0.5
    matrix = np.array([[to.a, to.b, c], [to.d, to.e, f]], np.float64)
    size = (change.width, change.height)
    return np.asarray(cv2.warpAffine(pixels, matrix, size, flags=cv2.INTER_LINEAR), np.uint8)


def _coloured(pixels: Pixels, change: PictureChange) -> Pixels:
    hsv = np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2HSV), np.float32)
    hsv[:, :, 0] = (hsv[:, :, 0] + change.hue / 2) % 180  # OpenCV's hue has 180 steps
    hsv[:, :, 1] = np.clip(hsv[:, :, 1] * change.saturation, 0, 255)
    hsv[:, :, 2] = np.clip(hsv[:, :, 2] * change.brightness, 0, 255)
    return np.asarray(cv2.cvtColor(hsv.astype(np.uint8), cv2.COLOR_HSV2RGB), np.uint8)
