"""CIFAR-10 for `target`: a small residual network on a GPU, its pictures held there; a step is an epoch.

python benchmarks/tune.py cifar --data cifar10.npz --shrink small.npz     20,000 pictures, enough for a search
python benchmarks/tune.py target --case cifar10 --data small.npz --calibrate 20    an accuracy that 5 % of points reach
python benchmarks/tune.py target --case cifar10 --data small.npz --target 0.8 --most 240
"""

from __future__ import annotations

import argparse
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

SPACE = {
    "lr": "log:1e-4:10",
    "optimizer": "sgd,nesterov,adamw,rmsprop",
    "width": "int:8:64:log",
    "batch": "ordered:64,128,256,512",
    "decay": "log:1e-6:1e-1",
    "smoothing": "float:0:0.3",
    "shift": "int:0:6",
}
place: list[Path] = []  # the file with the pictures


@cache
def pictures(file: Path) -> tuple[torch.Tensor, ...]:
    """Return pictures for training and for the test and their classes, on the device."""
    data = np.load(file)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mean = torch.tensor([125.3, 123.0, 113.9], device=device).view(1, 3, 1, 1)
    found = [torch.tensor(data[name], device=device).permute(0, 3, 1, 2) for name in ("train_x", "test_x")]
    scaled = [((one.float() - mean) / 62.0).contiguous(memory_format=torch.channels_last) for one in found]
    classes = [torch.tensor(data[name].astype(np.int64), device=device) for name in ("train_y", "test_y")]
    return (*scaled, *classes)


def block(wide_in: int, wide: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(wide_in, wide, 3, padding=1, bias=False), nn.MaxPool2d(2), nn.BatchNorm2d(wide), nn.ReLU()
    )


class Residual(nn.Module):
    """Two convolutions beside the identity."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        parts = [
            part
            for _ in range(2)
            for part in (nn.Conv2d(wide, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU())
        ]
        self.parts = nn.Sequential(*parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        added: torch.Tensor = self.parts(x)
        return x + added


class CifarTraining:
    """A residual network of nine layers in training."""

    def __init__(self, params: dict[str, Any], seed: int) -> None:
        torch.manual_seed(seed)
        wide = params["width"]
        self.data = pictures(place[0])
        self.device = self.data[0].device
        self.model = nn.Sequential(
            nn.Conv2d(3, wide, 3, padding=1, bias=False), nn.BatchNorm2d(wide), nn.ReLU(),
            block(wide, 2 * wide), Residual(2 * wide), block(2 * wide, 4 * wide), block(4 * wide, 8 * wide),
            Residual(8 * wide), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8 * wide, 10),
        ).to(self.device)  # fmt: skip
        made: dict[str, Any] = {
            "sgd": lambda p: torch.optim.SGD(p, lr=params["lr"], weight_decay=params["decay"]),
            "nesterov": lambda p: torch.optim.SGD(
                p, lr=params["lr"], weight_decay=params["decay"], momentum=0.9, nesterov=True
            ),
            "adamw": lambda p: torch.optim.AdamW(p, lr=params["lr"], weight_decay=params["decay"]),
            "rmsprop": lambda p: torch.optim.RMSprop(p, lr=params["lr"], weight_decay=params["decay"]),
        }
        self.optimizer = made[params["optimizer"]](self.model.parameters())
        self.loss = nn.CrossEntropyLoss(label_smoothing=params["smoothing"])
        self.batch, self.shift = params["batch"], params["shift"]

    def step(self) -> float:
        train_x, test_x, train_y, test_y = self.data
        self.model.train()
        order = torch.randperm(len(train_x), device=self.device)
        for start in range(0, len(order) - self.batch + 1, self.batch):
            rows = order[start : start + self.batch]
            x = self._moved(train_x[rows])
            with torch.autocast(self.device.type, torch.bfloat16):
                loss = self.loss(self.model(x), train_y[rows])
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            self.optimizer.step()
        self.model.eval()
        right = 0
        with torch.no_grad(), torch.autocast(self.device.type, torch.bfloat16):
            for first in range(0, len(test_x), 2000):
                found = self.model(test_x[first : first + 2000]).argmax(1)
                right += int((found == test_y[first : first + 2000]).sum())
        return right / len(test_x)

    def _moved(self, x: torch.Tensor) -> torch.Tensor:
        """Return pictures shifted by some pixels, all of a batch alike, and half of them mirrored."""
        if self.shift:
            down, across = (int(one) for one in torch.randint(-self.shift, self.shift + 1, (2,)))
            x = torch.roll(x, (down, across), (2, 3))
        mirrored = torch.rand(len(x), 1, 1, 1, device=x.device) < 0.5
        return torch.where(mirrored, x.flip(3), x)


def shrink(source: Path, target: Path, train: int = 16_000, test: int = 4_000) -> None:
    """Write a part of the pictures, compressed."""
    data = np.load(source)
    np.savez_compressed(
        target,
        train_x=data["train_x"][:train], train_y=data["train_y"][:train],
        test_x=data["test_x"][:test], test_y=data["test_y"][:test],
    )  # fmt: skip


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="tune.py cifar")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--shrink", type=Path, required=True)
    options = parser.parse_args(words)
    shrink(options.data, options.shrink)
    print(f"{options.shrink}: {options.shrink.stat().st_size >> 20} MiB")
