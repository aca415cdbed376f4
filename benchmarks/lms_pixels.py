"""How large a picture can be under a cap, computed: bytes a pixel with everything kept, and with nothing. No device.

    python benchmarks/lms_pixels.py

A step at batch 1 is recorded on shapes alone, in bfloat16, at two sizes: the difference is what grows with the
picture. "At least" is the lowest peak of any plan, that of one operation with all else moved away; the quotient is the
most pixels that large model support could reach, at any price. What cudnn takes besides is not in it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from testing.families import DenseNet, ResNet
from torch import nn

from weft import lms
from weft.lms.estimator import Estimate

SIDES = (1024, 2048)


def models() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    try:
        torchvision: Any = import_module("torchvision")
    except ImportError:
        yield "resnet50", lambda: ResNet(64, (3, 4, 6, 3), 1000)
        yield "resnet152", lambda: ResNet(64, (3, 8, 36, 3), 1000)
        yield "densenet201", lambda: DenseNet(32, (6, 12, 48, 32), 1000)
        return
    for name in ("resnet50", "resnet152", "densenet201"):
        yield name, getattr(torchvision.models, name)


def main() -> None:
    print(f"{date.today()}, torch {torch.__version__}: python benchmarks/lms_pixels.py")
    for name, make in models():
        found = []
        for side in SIDES:
            with torch.device("meta"):
                model, x = make().bfloat16(), torch.randn(1, 3, side, side, dtype=torch.bfloat16)
            found.append(lms.estimate(model, x))
        pixels = SIDES[1] ** 2 - SIDES[0] ** 2
        native, least = ((two - one) / pixels for one, two in zip(*map(peaks, found), strict=True))
        print(
            f"{name}: {native:.0f} bytes a pixel with everything kept, {least:.0f} at least: at most "
            f"{native / least:.1f} times the pixels"
        )


def peaks(found: Estimate) -> tuple[int, int]:
    return found.peak, found.least


if __name__ == "__main__":
    main()
