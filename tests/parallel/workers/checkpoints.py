"""A worker that saves each way's training by torch.distributed.checkpoint, goes on in a new model, and compares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

import weft
from weft.parallel import Way, apply
from weft.parallel.prediction.way import Kind

SAVED_AT, STEPS = 2, 4
_KINDS: tuple[Kind, ...] = ("ddp", "zero1", "fsdp", "fsdp-keep", "hsdp", "zero2")


def made(way: Way, optimizer: type[torch.optim.Optimizer]) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3, bias=False))
    heavy, light = ([one for one in net.parameters() if (one.dim() > 1) is wide] for wide in (True, False))
    like: Any = optimizer
    return apply(net, like([{"params": heavy, "weight_decay": 0.1}, {"params": light}], lr=0.05), way)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        source = torch.Generator().manual_seed(100 * step + dist.get_rank())
        model(torch.randn(4, 6, generator=source)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def values(model: nn.Module) -> list[torch.Tensor]:
    return [
        (one.full_tensor() if isinstance(one, DTensor) else one).detach().clone()
        for one in model.parameters()
    ]


def kept(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))


def resumed_as_it_was(way: Way, kind: type[torch.optim.Optimizer], folder: Path) -> bool:
    model, optimizer = made(way, kind)
    train(model, optimizer, 0, SAVED_AT)
    save(kept(model, optimizer), checkpoint_id=folder)
    train(model, optimizer, SAVED_AT, STEPS)
    other, its_optimizer = made(way, kind)
    state = kept(other, its_optimizer)
    load(state, checkpoint_id=folder)
    set_state_dict(other, its_optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(other, its_optimizer, SAVED_AT, STEPS)
    return all(torch.equal(a, b) for a, b in zip(values(model), values(other), strict=True))


def main() -> None:
    weft.init()
    for kind in _KINDS:
        for optimizer in (torch.optim.AdamW, torch.optim.SGD):
            way = Way(kind=kind)
            folder = Path(sys.argv[1]) / f"{kind}-{optimizer.__name__}"
            assert resumed_as_it_was(way, optimizer, folder), (str(way), optimizer)
            if dist.get_rank() == 0:
                print("same:", way, optimizer.__name__, flush=True)
    weft.shutdown()


main()
