"""Export: one picture through a network of EfficientNet-Lite0's shape, in eager torch and in the files made of it.

    python benchmarks/export.py [--rounds 30] [--threads 1]

One process, one picture of 224 x 224 at a time, the three take turns; times are medians and minima over rounds.
Weights are random, so sizes and times are what counts here: accuracy is in examples/export_digits.py.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims
from benchmarks.serve_models import STAGES

from weft.serve import Card
from weft.serve.export import export
from weft.serve.export.checks.runtime import ModelSession


def convolution(given: int, made: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(given, made, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(made)]


class Block(nn.Module):
    """Widen, look around by channel, narrow; added to what came in where shapes allow."""

    def __init__(self, given: int, made: int, expansion: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = given * expansion
        widen = [*convolution(given, wide, 1), nn.ReLU6()] if expansion > 1 else []
        self.body = nn.Sequential(
            *widen, *convolution(wide, wide, kernel, stride, wide), nn.ReLU6(), *convolution(wide, made, 1)
        )
        self.added = stride == 1 and given == made

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return x + out if self.added else out


def lite0() -> nn.Module:
    layers: list[nn.Module] = [*convolution(3, 32, 3, 2), nn.ReLU6()]
    given = 32
    for expansion, made, repeats, stride, kernel in STAGES:
        for number in range(repeats):
            layers.append(Block(given, made, expansion, kernel, 1 if number else stride))
            given = made
    layers += [*convolution(given, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.Linear(1280, 1000))


def timed(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = lite0()
    pictures = torch.randn(16, 3, 224, 224)
    with torch.no_grad():
        for _ in range(10):
            model.train()(pictures[:8])  # means and variances that fit the weights
    model.eval()

    calls: dict[str, Callable[[], object]] = {}
    sizes: dict[str, float] = {
        "eager torch": sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    }
    one = pictures[:1]

    def eager() -> None:
        with torch.inference_mode():
            model(one)

    calls["eager torch"] = eager
    with tempfile.TemporaryDirectory() as name:
        for precision in ("fp32", "int8"):
            done = export(
                model,
                pictures,
                Path(name) / f"{precision}.onnx",
                card=Card(task="classify"),
                precision=precision,
            )
            step = done.steps[-1]
            session = ModelSession(done.path, options.threads)
            inputs = {"input": np.ascontiguousarray(one.numpy())}
            label = f"file, {precision}"
            calls[label] = lambda session=session, inputs=inputs: session(inputs)  # type: ignore[misc]
            sizes[label] = step.size
            print(
                f"{label}: largest difference {step.parity.largest:.2g}, same class {step.parity.agreement:.1%}"
            )
        times: dict[str, list[float]] = {label: [] for label in calls}
        for number in range(options.rounds + 3):
            for label, call in calls.items():
                elapsed = timed(call)
                if number >= 3:  # before that memory is still being laid out
                    times[label].append(elapsed)
    print(f"\n{'':<14} {'MB':>7} {'median ms':>10} {'min ms':>8}")
    for label, values in times.items():
        print(
            f"{label:<14} {sizes[label] / 1e6:>7.1f} {statistics.median(values) * 1e3:>10.1f} {min(values) * 1e3:>8.1f}"
        )
    rival = statistics.median(times["eager torch"]), min(times["eager torch"])
    for label in ("file, fp32", "file, int8"):
        ratio = rival[0] / statistics.median(times[label])
        print(f"ratio {ratio:.2f} (of the minima {rival[1] / min(times[label]):.2f}): eager torch / {label}")
    measured = {name: rival[0] / statistics.median(times[f"file, {name}"]) for name in ("fp32", "int8")}
    print("\n" + claims.report("export", measured), end="")


if __name__ == "__main__":
    main()
