"""Read pixels through affine maps: by torch for a whole batch on its device, or by OpenCV picture by picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

Array = np.ndarray[Any, Any]
GREY = 114  # what lies outside a padded picture


def warp_batch(pixels: Tensor, maps: Tensor, out: tuple[int, int], *, pad: bool) -> Tensor:
    """Return n x 3 x height x width, in float32 of 0..255, from stored pictures of one size on a device.

    `maps`: n x 2 x 3, from places of the output to places of the stored pictures.
    """
    _n, _, height, width = pixels.shape
    device = pixels.device
    xs = torch.arange(out[1], device=device, dtype=torch.float32) + 0.5
    ys = torch.arange(out[0], device=device, dtype=torch.float32) + 0.5
    maps = maps.to(device, torch.float32)
    across = maps[:, :, 0, None] * xs + maps[:, :, 2, None]  # n x 2 x width
    down = maps[:, :, 1, None] * ys  # n x 2 x height
    places = across[:, :, None, :] + down[:, :, :, None]  # n x 2 x height x width
    span = torch.tensor([2.0 / width, 2.0 / height], device=device).view(1, 2, 1, 1)
    grid = (places * span - 1).permute(0, 2, 3, 1)
    source = pixels.float()
    if not pad:
        return functional.grid_sample(
            source, grid, mode="bilinear", padding_mode="reflection", align_corners=False
        )
    return functional.grid_sample(source - GREY, grid, mode="bilinear", align_corners=False) + GREY


def colour_batch(pixels: Tensor, maps: Array | None) -> Tensor:
    """Return pixels after maps of colours (n x 3 x 4)."""
    if maps is None:
        return pixels
    matrix = torch.as_tensor(maps, dtype=torch.float32).to(pixels.device)
    mixed = torch.einsum("nij,njhw->nihw", matrix[:, :, :3], pixels) + matrix[:, :, 3, None, None]
    return mixed.clamp_(0, 255)


def erase_batch(pixels: Tensor, centres: Array, side: int) -> Tensor:
    """Grey out a square of `side` pixels around each centre (n x 2), in place."""
    where = torch.as_tensor(centres).to(pixels.device)
    xs = torch.arange(pixels.shape[3], device=pixels.device)
    ys = torch.arange(pixels.shape[2], device=pixels.device)
    across = (xs >= where[:, :1] - side // 2) & (xs < where[:, :1] - side // 2 + side)
    down = (ys >= where[:, 1:] - side // 2) & (ys < where[:, 1:] - side // 2 + side)
    return pixels.masked_fill_((down[:, :, None] & across[:, None, :])[:, None], GREY)


def cut_picture(pixels: Array, matrix: Array, target: Array) -> bool:
    """Write a straight cut of a picture, scaled, into `target` (height x width x 3); False: the map is no such cut.

    Cuts begin and end at whole pixels of the source, which is a quarter of the time of `warp_picture`.
    """
    import cv2

    (across, turn, left), (other, down, top) = matrix.tolist()
    high, wide = target.shape[:2]
    right, bottom = left + across * wide, top + down * high
    x0, x1 = round(min(left, right)), round(max(left, right))
    y0, y1 = round(min(top, bottom)), round(max(top, bottom))
    inside = 0 <= x0 < x1 <= pixels.shape[1] and 0 <= y0 < y1 <= pixels.shape[0]
    if turn or other or not inside:
        return False
    cv2.resize(pixels[y0:y1, x0:x1], (wide, high), dst=target, interpolation=cv2.INTER_LINEAR)
    if across < 0 or down < 0:
        cv2.flip(target, -1 if across < 0 and down < 0 else 1 if across < 0 else 0, dst=target)
    return True


def warp_picture(pixels: Array, matrix: Array, out: tuple[int, int], *, pad: bool) -> Array:
    """Return height x width x 3, in uint8, from one stored picture by OpenCV."""
    import cv2

    # OpenCV counts from the centres of pixels, we count from corners.
    shift = matrix[:, :2] @ np.array([0.5, 0.5]) + matrix[:, 2] - 0.5
    plain = np.concatenate([matrix[:, :2], shift[:, None]], 1)
    border = cv2.BORDER_CONSTANT if pad else cv2.BORDER_REFLECT
    return np.asarray(
        cv2.warpAffine(
            pixels,
            plain,
            (out[1], out[0]),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=border,
            borderValue=(GREY, GREY, GREY),
        )
    )
