"""Checkpoints of a training in a model folder: written whole or not at all, and taken up by the next start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft.vision.training.averaging import AveragedWeights

FILE = "checkpoint.pt"


@dataclass
class Checkpoint:
    """The state that a training goes on from."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    averaged: AveragedWeights
    result: Any  # its history, seconds and best state are kept


def write_checkpoint(folder: Path, state: Checkpoint, epoch: int) -> None:
    """Write the state before an epoch."""
    part = folder / (FILE + ".part")
    torch.save(
        {
            "epoch": epoch,
            "model": state.model.state_dict(),
            "optimizer": state.optimizer.state_dict(),
            "averaged": state.averaged.model.state_dict(),
            "averaged_steps": state.averaged.steps,
            "history": list(state.result.history),
            "training_s": state.result.training_s,
            "best": state.result.best,
            "best_loss": state.result.best_loss,
            "best_state": state.result.best_state,
        },
        part,
    )
    part.replace(folder / FILE)


def read_checkpoint(folder: Path | None, state: Checkpoint) -> int:
    """Take a checkpoint up if there is one; return the epoch to go on with."""
    if folder is None or not (folder / FILE).is_file():
        return 0
    kept = torch.load(folder / FILE, map_location="cpu", weights_only=True)
    state.model.load_state_dict(kept["model"])
    state.averaged.model.load_state_dict(kept["averaged"])
    state.averaged.steps = kept["averaged_steps"]
    state.optimizer.load_state_dict(kept["optimizer"])
    result = state.result
    result.history.extend(kept["history"])
    result.training_s, result.best, result.best_state = kept["training_s"], kept["best"], kept["best_state"]
    result.best_loss = kept.get("best_loss", 0.0)  # not in those of an older release
    return int(kept["epoch"])
