"""Mixup and cutmix: pictures of a batch are mixed with one another, and so are their labels."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from weft.vision.config.schema import AugmentConfig


def soft_targets(classes: Tensor, count: int, smoothing: float) -> Tensor:
    """Return class numbers as probabilities, with some of it spread over all classes."""
    return functional.one_hot(classes, count).float() * (1 - smoothing) + smoothing / count


def mixed(
    generator: np.random.Generator, pixels: Tensor, targets: Tensor, augment: AugmentConfig
) -> tuple[Tensor, Tensor]:
    """Return a batch mixed with itself in another order, by mixup or by cutmix, or as it was where neither is asked."""
    if not (augment.mixup or augment.cutmix) or len(pixels) < 2:
        return pixels, targets
    cut = bool(augment.cutmix) and (not augment.mixup or generator.random() < 0.5)
    alpha = augment.cutmix if cut else augment.mixup
    share = float(generator.beta(alpha, alpha))
    order = torch.from_numpy(generator.permutation(len(pixels))).to(pixels.device)
    if cut:
        height, width = pixels.shape[-2:]
        side = (1 - share) ** 0.5
        y, x = int(generator.integers(height)), int(generator.integers(width))
        y0, y1 = max(0, y - int(height * side / 2)), min(height, y + int(height * side / 2))
        x0, x1 = max(0, x - int(width * side / 2)), min(width, x + int(width * side / 2))
        pixels = pixels.clone()
        pixels[:, :, y0:y1, x0:x1] = pixels[order][:, :, y0:y1, x0:x1]
        share = 1 - (y1 - y0) * (x1 - x0) / (height * width)
    else:
        pixels = pixels * share + pixels[order] * (1 - share)
    return pixels, targets * share + targets[order] * (1 - share)
