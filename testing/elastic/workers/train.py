"""A small training run whose result depends on every sample, random number and step; with faults on demand."""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset, IterableDataset
from uncompiled import without_compiler  # type: ignore[import-not-found]

from weft import elastic
from weft.elastic.worker import healing
from weft.elastic.worker.training_loop import TrainingLoop
from weft.errors import CollectiveError

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--length", type=int, default=100)
parser.add_argument("--batch", type=int, default=16)
parser.add_argument("--micro", type=int, default=4)
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--until", type=Path, help="no pause after this file is there")
parser.add_argument("--stream", action="store_true")
parser.add_argument("--per-epoch", action="store_true", help="step the scheduler once an epoch")
parser.add_argument("--two-losses", action="store_true", help="a second backward pass in each turn")
parser.add_argument(
    "--leave-out", action="store_true", help="go on without a backward pass after some batches"
)
parser.add_argument("--reproducible", action="store_true")
parser.add_argument("--save-all", action="store_true", help="no step before the last checkpoint is written")
parser.add_argument("--slow", metavar="WORKER:FACTOR", help="this worker takes so many times as long")
parser.add_argument("--fault", action="append", default=[], metavar="WORKER:STEP:WHAT")
options = parser.parse_args()
torch.set_num_threads(1)
without_compiler()
faulthandler.register(signal.SIGUSR1)  # says where a worker is


def sample(index: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(index)
    x = torch.randn(8, generator=generator, dtype=torch.float64)
    return x + 0.01 * torch.randn(8, dtype=torch.float64), x.sum().sin()  # augmented


class Points(Dataset[Any]):
    def __len__(self) -> int:
        return int(options.length)

    def __getitem__(self, index: int) -> Any:
        return sample(index)


class Stream(IterableDataset[Any]):
    """Without augmentation: what a stream draws at random is its own business."""

    def __iter__(self) -> Iterator[Any]:
        for index in range(options.length):
            generator = torch.Generator().manual_seed(index)
            x = torch.randn(8, generator=generator, dtype=torch.float64)
            yield x, x.sum().sin()


def fault(at: str) -> None:
    """Do what was asked for, if it is this worker's turn."""
    for text in options.fault:
        worker, step, what = text.rsplit(":", 2)
        due = step == "*" or int(step) == run.committed
        if worker == run.name and due and what.partition("-")[2] == at:
            print(f"fault {text}", file=sys.stderr, flush=True)
            FAULTS[what.partition("-")[0]]()


def deadlock() -> None:
    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def spin() -> None:
    while True:
        pass


def miss() -> None:
    """As if the others had heard the end of a collective and this worker had not."""
    raise CollectiveError("on purpose")


def fail() -> None:
    raise ValueError("on purpose")


FAULTS: dict[str, Callable[[], object]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "leave": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "deadlock": deadlock,
    "spin": spin,
    "fail": fail,
    "miss": miss,
    "exit": lambda: os._exit(0),
}

run = elastic.join(reproducible=options.reproducible)
fault("start")


def fetch(*args: Any, **kwargs: Any) -> Any:
    fault("heal")
    return original_fetch(*args, **kwargs)


def wait_for_votes(self: Any, work: Any) -> None:
    fault("again" if self.replica.gradients.passes else "reduce")
    if options.save_all and self.saver._thread is not None:
        self.saver._thread.join()
    original_reduce(self, work)
    fault("reduced")


original_fetch, healing.fetch = healing.fetch, fetch  # type: ignore[attr-defined]
original_reduce = TrainingLoop._reduce
TrainingLoop._reduce = wait_for_votes  # type: ignore[method-assign]

torch.manual_seed(0 if "SAME" in os.environ else os.getpid())
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1)).to(
    run.device, torch.float64
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = run.loader(
    Stream() if options.stream else Points(),
    batch=options.batch,
    micro=options.micro,
    num_workers=options.workers,
)
total = options.epochs * -(-options.length // options.batch)
schedule: Any = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=total)
if options.per_epoch:
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
run.register(model=model, optimizer=optimizer, schedule=schedule)
slow, _, factor = (options.slow or "").rpartition(":")
for _epoch in run.epochs(options.epochs):
    for x, y in loader:
        fault("forward")
        x, y = x.to(run.device), y.to(run.device)
        loss = nn.functional.mse_loss(model(x).squeeze(1), y)
        if options.leave_out and loss > 0.6:
            continue
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        if options.two_losses:
            (1e-3 * model[0].weight.square().sum()).backward()  # type: ignore[operator]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if options.pause and not (options.until and options.until.exists()):
            time.sleep(options.pause * (float(factor) if slow == run.name else 1.0))
        optimizer.step()
        if run.applied:
            fault("commit")
        if not options.per_epoch:
            schedule.step()
    fault("epoch")
    if options.per_epoch:
        schedule.step()
state = model.state_dict()
digest = hashlib.sha256(b"".join(value.cpu().numpy().tobytes() for value in state.values())).hexdigest()[:12]
result = {
    "worker": run.name,
    "rank": run.rank,
    "size": run.size,
    "committed": run.committed,
    "digest": digest,
    "sum": float(sum(value.abs().sum() for value in state.values())),
    "lr": optimizer.param_groups[0]["lr"],
    "pid": os.getpid(),
}
print(json.dumps(result), flush=True)
