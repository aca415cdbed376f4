"""Random affine maps of pictures, drawn for many at once; pure arithmetic on arrays.

A map takes a place of the model's input to a place of the upright original picture, both in pixels from the left upper
corner: what a resize, a crop, a flip, a turn and a shift do together is one matrix of 2 x 3. Pixels are then read once,
and boxes and polygons move by the inverse.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from weft.vision.config.schema import AugmentConfig, VisionConfig

Array = np.ndarray[Any, Any]
Fit = Literal["crop", "pad"]
KEPT_SHARE = 0.3  # of a box that must be seen, or it is dropped


def plain_maps(sizes: Array, out: tuple[int, int], fit: Fit, crop: float = 1.0) -> Array:
    """Return the maps without chance: the middle of each picture, as the server cuts or pads it.

    `sizes`: n x 2, width and height. `out`: height and width of the model's input.
    """
    zeros = np.zeros(len(sizes))
    scale = fit_scales(sizes, out, fit) / (crop if fit == "crop" else 1)
    return _compose(sizes / 2, scale, scale, zeros, zeros > 1, zeros > 1, out)


def random_maps(
    generator: np.random.Generator,
    sizes: Array,
    out: tuple[int, int],
    fit: Fit,
    augment: AugmentConfig,
    flips: Array | None = None,
) -> Array:
    """Return one random map a picture; `flips` tells which are mirrored, where that is not left to chance."""
    n, draw = len(sizes), generator.uniform
    scale = fit_scales(sizes, out, fit)
    width, height = sizes[:, 0], sizes[:, 1]
    centre = sizes / 2.0
    across = down = scale
    if augment.crop:
        share = draw(1 - augment.crop, 1, n)
        stretch = np.exp(draw(-1, 1, n) * np.log1p(augment.aspect) / 2)
        side = np.sqrt(share)
        # Sides of the crop in the original: never more than the picture has.
        wide = np.minimum(out[1] / scale * side * stretch, width)
        high = np.minimum(out[0] / scale * side / stretch, height)
        across, down = out[1] / wide, out[0] / high
        room = np.stack([width - wide, height - high], 1)
        centre = np.stack([wide, high], 1) / 2 + room * draw(0, 1, (n, 2))
    if augment.zoom:
        factor = np.exp(draw(-1, 1, n) * np.log1p(augment.zoom))
        across, down = across * factor, down * factor
    if augment.translate >= 1:
        pixels = int(augment.translate)
        centre = centre + generator.integers(-pixels, pixels + 1, (n, 2)) / scale[:, None]
    elif augment.translate:
        centre = centre + draw(-augment.translate, augment.translate, (n, 2)) * sizes
    angle = np.deg2rad(draw(-augment.rotate, augment.rotate, n)) if augment.rotate else np.zeros(n)
    if augment.quarter_turns:
        angle = angle + generator.integers(0, 4, n) * (np.pi / 2)
    mirrored = generator.random(n) < 0.5 if flips is None else flips
    mirrored = mirrored if augment.flip or augment.alternate_flip else np.zeros(n, bool)
    upside = generator.random(n) < 0.5 if augment.vertical_flip else np.zeros(n, bool)
    return _compose(centre, across, down, angle, mirrored, upside, out)


def fit_for(config: VisionConfig) -> Fit:
    """Return how pictures of a task are fitted into the input: classes are of the middle, boxes of the whole."""
    return "crop" if config.task in ("classification", "anomaly") else "pad"


def fit_scales(sizes: Array, out: tuple[int, int], fit: Fit) -> Array:
    """Return the pixels of the model's input per pixel of each original."""
    ratios = np.stack([out[1] / sizes[:, 0], out[0] / sizes[:, 1]], 1)
    return np.asarray(ratios.max(1) if fit == "crop" else ratios.min(1))


def _compose(
    centre: Array,
    across: Array,
    down: Array,
    angle: Array,
    mirrored: Array,
    upside: Array,
    out: tuple[int, int],
) -> Array:
    """Shift the input's centre to 0, mirror, scale, turn, shift to the centre in the original."""
    x = np.where(mirrored, -1.0, 1.0) / across
    y = np.where(upside, -1.0, 1.0) / down
    cos, sin = np.cos(angle), np.sin(angle)
    maps = np.empty((len(centre), 2, 3))
    maps[:, 0, 0], maps[:, 0, 1] = cos * x, -sin * y
    maps[:, 1, 0], maps[:, 1, 1] = sin * x, cos * y
    middle = np.array([out[1] / 2, out[0] / 2])
    maps[:, :, 2] = centre - maps[:, :, :2] @ middle
    return maps


def scaled_source(maps: Array, sizes: Array, stored: Array) -> Array:
    """Return the maps into pictures that are stored at other sizes (n x 2, width and height) than the originals."""
    return maps * (stored / sizes)[:, :, None]


def inverse(matrix: Array) -> Array:
    """Return the map from the original to the model's input."""
    linear = np.linalg.inv(matrix[:, :2])
    return np.concatenate([linear, -(linear @ matrix[:, 2:])], 1)


def moved_points(points: Array, matrix: Array) -> Array:
    """Return n x 2 points after a map of 2 x 3."""
    return np.asarray(points @ matrix[:, :2].T + matrix[:, 2])


def moved_boxes(boxes: Array, matrix: Array, out: tuple[int, int]) -> tuple[Array, Array]:
    """Return boxes (n x 4) in the model's input, cut at its sides, and which of them are still seen."""
    x0, y0, x1, y1 = boxes.T
    corners = np.stack(
        [np.stack([x0, y0], 1), np.stack([x1, y0], 1), np.stack([x1, y1], 1), np.stack([x0, y1], 1)], 1
    )
    moved = moved_points(corners.reshape(-1, 2), inverse(matrix)).reshape(-1, 4, 2)
    low, high = moved.min(1), moved.max(1)
    area = (high - low).prod(1)
    limit = np.array([out[1], out[0]], float)
    low, high = np.clip(low, 0, limit), np.clip(high, 0, limit)
    sides = high - low
    seen = (sides.min(1) >= 2) & (sides.prod(1) >= KEPT_SHARE * area)
    return np.concatenate([low, high], 1), seen


def colour_maps(generator: np.random.Generator, n: int, augment: AugmentConfig) -> Array | None:
    """Return maps of colours (n x 3 x 4, pixels of 0..255), or None where colours stay."""
    wanted = augment.brightness or 0.0, augment.contrast or 0.0, augment.saturation or 0.0
    if not any(wanted):
        return None
    light, contrast, saturation = (np.exp(generator.uniform(-1, 1, n) * np.log1p(one)) for one in wanted)
    grey = np.array([0.299, 0.587, 0.114])
    linear = saturation[:, None, None] * np.eye(3) + (1 - saturation)[:, None, None] * grey[None, None]
    maps = np.empty((n, 3, 4))
    maps[:, :, :3] = linear * (light * contrast)[:, None, None]
    maps[:, :, 3] = (128 * (1 - contrast) * light)[:, None]
    return maps
