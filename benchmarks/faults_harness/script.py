"""The training script of `benchmarks/faults.py`: BatchNorm, dropout, AdamW and a scheduler, as people write them.

    weft run --elastic 1:3 -n 3 benchmarks/faults_harness/script.py FOLDER EPOCHS STEP_MS

A worker appends lines to a file of its own in FOLDER: before each backward pass, the samples it has computed of the
step; after each step, the same and a checksum of all parameters. The judge (`judge.py`) trusts nothing else.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import zlib
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from weft import elastic

SAMPLES, BATCH, FEATURES = 960, 24, 16
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)


class Rows(Dataset[tuple[Tensor, int]]):
    """Rows of numbers made from their index, which comes along so that a batch tells what it holds."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.sin(torch.arange(FEATURES) * (index + 1.0)), index


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)
    )


def checksum_of(model: nn.Module) -> int:
    """A number that is the same for all workers whose parameters have the same bits."""
    total = 0
    for parameter in model.parameters():
        total = zlib.crc32(parameter.detach().numpy().tobytes(), total)
    return total


def main() -> None:
    folder, epochs, step_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) / 1000
    worker = f"{os.uname().nodename}-{os.getpid()}"
    faulthandler.register(signal.SIGUSR1, file=(folder / f"stacks-{worker}.txt").open("w"))
    torch.set_num_threads(1)
    run = elastic.join()
    log = os.open(folder / f"steps-{worker}.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 50, 0.9)
    loader = run.loader(Rows(), batch=BATCH)
    run.register(model=model, optimizer=optimizer, scheduler=scheduler)
    step, computed = -1, set[int]()

    def write(epoch: int, checksum: int | None) -> None:
        line = {
            "t": time.time(),
            "worker": worker,
            "epoch": epoch,
            "step": step,
            "view": run._participant.loop.place.view.number,
            "size": run.size,
            "samples": sorted(computed),
            "checksum": checksum,
        }
        os.write(log, (json.dumps(line) + "\n").encode())  # one call: a kill leaves no half line

    for epoch in run.epochs(epochs):
        for rows, numbers in loader:
            if step != run.committed:
                step, computed = run.committed, set()
            ticket = run._participant.loop.ticket
            if ticket is not None and ticket.weight:  # a member without a share goes through the loop as well
                computed.update(numbers.tolist())
            time.sleep(step_s)
            optimizer.zero_grad()
            loss = model(rows).square().mean()
            write(epoch, None)
            loss.backward()
            optimizer.step()
            scheduler.step()
            if run.applied:
                write(epoch, checksum_of(model))


if __name__ == "__main__":
    main()
