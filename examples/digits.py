"""Train a small network on handwritten digits, on as many workers as there are.

    weft run -n 2 examples/digits.py
    weft run -H a,b examples/digits.py --epochs 20

The data set ships with scikit-learn: 1,797 pictures of 8 x 8 pixels. Every worker trains on its own share of
each batch; the gradients are averaged by DistributedDataParallel. Rank 0 shows progress and writes the report.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.utils import data

import weft

GOAL = 0.97


class ReductionTime:
    """The time in which at least one reduction of gradients was under way."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0
        self._pending = 0

    def begin(self) -> None:
        if self._pending == 0:
            self._began = time.perf_counter()
        self._pending += 1

    def end(self) -> None:
        self._pending -= 1
        if self._pending == 0:
            self.seconds += time.perf_counter() - self._began


def timed_all_reduce(clock: ReductionTime, bucket: GradBucket) -> Future[torch.Tensor]:
    """A DDP communication hook: averages gradients as DDP does by itself, and keeps the time."""

    def ended(future: Future[list[torch.Tensor]]) -> torch.Tensor:
        clock.end()
        return future.value()[0]

    clock.begin()
    gradients = bucket.buffer().div_(weft.size())
    reduced: Future[torch.Tensor] = dist.all_reduce(gradients, async_op=True).get_future().then(ended)
    return reduced


def load(test_share: float = 0.2) -> tuple[data.TensorDataset, data.TensorDataset]:
    """Training and test pictures, split the same way on every worker."""
    digits = load_digits()
    pictures = torch.tensor(digits.data / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    labels = torch.tensor(digits.target)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)))
    cut = int(len(labels) * test_share)
    test, train = order[:cut], order[cut:]
    return data.TensorDataset(pictures[train], labels[train]), data.TensorDataset(
        pictures[test], labels[test]
    )


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10),
    )  # fmt: skip


def show(done: int, total: int, text: str) -> None:
    """A progress bar on standard error that rewrites its own line."""
    filled = 30 * done // total
    end = "\n" if done == total else ""
    print(
        f"\r{'━' * filled}{'╌' * (30 - filled)} {done}/{total} {text}", end=end, file=sys.stderr, flush=True
    )


def accuracy(model: nn.Module, test: data.TensorDataset, device: torch.device) -> float:
    model.eval()
    pictures, labels = (tensor.to(device) for tensor in test.tensors)
    with torch.no_grad():
        right = (model(pictures).argmax(1) == labels).float().mean()
    model.train()
    return float(right)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64, help="pictures in a step, over all workers")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--output", type=Path, help="where the model goes (the run directory)")
    options = parser.parse_args()

    context = weft.init()
    torch.manual_seed(0)
    train, test = load()
    # Each worker takes its share of every batch, so the result does not depend on how many there are.
    share = max(1, options.batch // context.size)
    sampler: data.DistributedSampler[data.TensorDataset] = data.DistributedSampler(
        train, seed=0, drop_last=True
    )
    loader = data.DataLoader(train, batch_size=share, sampler=sampler)
    net = network().to(context.device)
    model = DistributedDataParallel(net)
    reducing = ReductionTime()
    model.register_comm_hook(reducing, timed_all_reduce)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, options.lr, total_steps=options.epochs * len(loader)
    )

    samples, training_s = 0, 0.0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        began = time.perf_counter()
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures.to(context.device)), labels.to(context.device))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            samples += len(labels) * context.size
        training_s += time.perf_counter() - began
        if context.rank == 0:
            reached = accuracy(net, test, context.device)
            show(epoch + 1, options.epochs, f"loss {loss.item():.3f}  accuracy {reached:.1%}")

    code = 0
    if context.rank == 0:
        path = (options.output or Path(os.environ.get("WEFT_RUN_DIR", "."))) / "digits.pt"
        torch.save(net.state_dict(), path)
        reached = accuracy(net, test, context.device)
        where = f"{context.num_hosts} host{'s' * (context.num_hosts > 1)} ({context.device.type})"
        dimensions = os.environ.get("WEFT_DIMENSIONS", f"{context.size}x1x1x1")
        print(f"test accuracy   {reached:.1%} on {len(test)} pictures the model has not seen")
        print(f"topology        {context.size} workers on {where}, dimensions {dimensions}")
        print(f"speed           {samples / training_s:,.0f} samples/s")
        print(f"communication   {reducing.seconds / training_s:.0%} of the time a reduction was under way")
        print(f"model           {path}")
        print("next            weft topology                       what this machine looks like")
        print("                weft run -H a,b examples/digits.py  the same on two machines")
        if reached < GOAL:
            print(
                f"accuracy must reach {GOAL:.0%}, got {reached:.1%}; train longer with --epochs",
                file=sys.stderr,
            )
            code = 1
    weft.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
