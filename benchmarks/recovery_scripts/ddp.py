"""Plain DistributedDataParallel as torchrun's users write it: a checkpoint every K steps, loaded at every start.

    torchrun --nproc-per-node 2 benchmarks/recovery_scripts/ddp.py --checkpoint-every 10

With --checkpoint-every 0 it is DDP and nothing else. $RECOVERY_BACKEND names the backend (gloo).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.elastic.utils.data.elastic_distributed_sampler import ElasticDistributedSampler
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.recovery_scripts.common import (
    Numbers,
    Record,
    folder,
    loss_of,
    make_optimizer,
    network,
    options,
)


def save(path: Path, state: dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    torch.save(state, new)
    new.rename(path)  # a kill while it is written leaves the one before


def main() -> None:
    asked = options()
    dist.init_process_group(os.environ.get("RECOVERY_BACKEND", "gloo"))
    rank, world = dist.get_rank(), dist.get_world_size()
    record = Record(rank)
    model = DistributedDataParallel(network(asked.size_mib))
    optimizer = make_optimizer(model)
    checkpoint = folder() / "checkpoint.pt"
    step = position = 0  # of steps done, of samples consumed by all
    if asked.checkpoint_every and checkpoint.exists():
        state = torch.load(checkpoint)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, position = state["step"], state["position"]
    record.goes_on_from(step)
    data = Numbers(asked.samples)
    sampler = ElasticDistributedSampler(data, start_index=position)
    for rows, numbers in DataLoader(data, batch_size=asked.batch, sampler=sampler):
        optimizer.zero_grad()
        loss_of(model, rows, asked.step_ms).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        step, position = step + 1, position + world * len(numbers)
        record.commit(step, numbers.tolist())
        if rank == 0 and asked.checkpoint_every and step % asked.checkpoint_every == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            save(checkpoint, state | {"step": step, "position": position})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
