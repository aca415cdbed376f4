"""What the scripts of `benchmarks/recovery.py` share: one model, one data set, one step, one record of commits.

A worker appends a line for every step it committed to a file of its own in $RECOVERY_FOLDER:
{"t": seconds since 1970, "step": ..., "worker": ..., "pid": ..., "samples": [...]}. A worker that loaded a checkpoint
first writes {"t": ..., "base": the step it goes on from, "worker": ..., "pid": ...}: later commits are void then.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

WIDTH = 256
LAYER_BYTES = 4 * WIDTH * (WIDTH + 1)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the harness asks of every script alike."""

    step_ms: float
    size_mib: float
    steps: int  # in the epoch, with all workers there
    batch: int  # samples a worker takes in a step
    workers: int  # of a full house
    checkpoint_every: int  # steps; 0 for never

    @property
    def samples(self) -> int:
        return self.steps * self.batch * self.workers


def options() -> Options:
    parser = argparse.ArgumentParser()
    parser.add_argument("--step-ms", type=float, default=100.0)
    parser.add_argument("--size-mib", type=float, default=4.0)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--checkpoint-every", type=int, default=0)
    torch.set_num_threads(1)
    return Options(**vars(parser.parse_args()))


def folder() -> Path:
    return Path(os.environ["RECOVERY_FOLDER"])


class Numbers(Dataset[tuple[Tensor, Tensor]]):
    """Random rows; the label of each is its number, so that a batch tells which samples it holds."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.rows = torch.randn(64, WIDTH, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.rows[index % len(self.rows)], torch.tensor(index)


def network(size_mib: float) -> nn.Module:
    """About so many MiB of parameters, the same on every worker."""
    torch.manual_seed(0)
    layers = max(1, round(size_mib * (1 << 20) / LAYER_BYTES))
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)


def loss_of(model: nn.Module, rows: Tensor, step_ms: float) -> Tensor:
    """The forward pass. Its compute is slept, so that two cores suffice for several workers."""
    time.sleep(step_ms / 1000)
    _stuck_if_told()
    loss: Tensor = model(rows).square().mean()
    return loss


def _stuck_if_told() -> None:
    """Loop for ever if there is a file that says so; other threads of this process live on."""
    pid = os.getpid()
    if (folder() / f"stick-{pid}").exists():
        proof = folder() / f"stuck-{pid}.new"
        proof.write_text(str(time.time()))
        proof.rename(proof.with_suffix(""))
        while True:
            time.sleep(0.01)


class Record:
    """Writes down what this worker committed."""

    def __init__(self, worker: int | str) -> None:
        self.worker = str(worker)
        self.pid = os.getpid()
        path = folder() / f"commits-{self.worker}-{self.pid}.jsonl"
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def goes_on_from(self, step: int) -> None:
        self._write(base=step)

    def commit(self, step: int, samples: list[int]) -> None:
        self._write(step=step, samples=samples)

    def _write(self, **fields: Any) -> None:
        entry = {"t": time.time(), "worker": self.worker, "pid": self.pid, **fields}
        os.write(self._file, (json.dumps(entry) + "\n").encode())  # one call: a kill leaves no half line
