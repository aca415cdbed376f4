"""Train a small network on handwritten digits, export it to ONNX as fp32 and int8, and keep both in a store.

    python examples/export_digits.py --folder digits

Each file is checked against the network before it is there; afterwards it needs neither torch nor this script:

    weft model show digits/digits-int8.onnx
    weft serve --store digits/store digits@production
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from weft.serve import Card, Picture, Store
from weft.serve.export import export


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(64 * 16, 10),
    )  # fmt: skip


def train(model: nn.Module, pictures: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for batch in torch.chunk(torch.randperm(len(labels)), len(labels) // 64):
            loss = nn.functional.cross_entropy(model(pictures[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=Path("digits"))
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)

    torch.manual_seed(0)
    digits = load_digits()
    pictures = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    test, rest = order[:360], order[360:]
    model = network()
    train(model, pictures[rest], labels[rest], options.epochs)

    # What a server must know to take a picture file: these pixels are 0..255 there, 0..1 here, white on black.
    card = Card(
        name="digits",
        task="classify",
        labels=tuple(map(str, range(10))),
        picture=Picture(height=8, width=8, colours="GREY"),
    )
    store = Store(options.folder / "store")
    for precision, alias in (("fp32", "exact"), ("int8", "production")):
        done = export(
            model,
            pictures[test],
            options.folder / f"digits-{precision}.onnx",
            card=card,
            precision=precision,
            calibration=pictures[rest][:200],
            truth=labels[test],
        )
        entry = store.push(done.path, aliases=[alias])
        step = done.steps[-1]
        assert step.parity.accuracy is not None
        print(
            f"{entry.name}@{entry.version} {alias:10} {step.size:>7,} bytes  accuracy {step.parity.accuracy:.1%} "
            f"(model {step.parity.accuracy_source:.1%})  largest difference {step.parity.largest:.1g}"
        )


if __name__ == "__main__":
    main()
