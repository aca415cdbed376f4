"""Small torch modules to export, each with its own difficulty."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Pictures(nn.Module):
    """Batch normalisation and dropout, which answer otherwise while training; any height and width."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 4)

    def forward(self, pictures: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.conv(pictures))).mean((2, 3))
        scores: Tensor = self.head(self.drop(hidden))
        return scores


class Sentences(nn.Module):
    """Numbered tokens, any number of them."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        weights = mask.float().unsqueeze(2)
        hidden = (self.embed(ids) * weights).sum(1) / weights.sum(1).clamp(min=1)
        scores: Tensor = self.head(hidden)
        return scores


class Pair(nn.Module):
    """Two inputs, two outputs, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(3, 40)
        self.right = nn.Linear(5, 40)

    def forward(self, left: Tensor, right: Tensor) -> dict[str, Tensor]:
        total = self.left(left) + self.right(right)
        return {"total": total, "first": total[:, 0]}


class Frozen(nn.Module):
    """Decides by the number of rows, in Python: a capture takes one of the two ways for good."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.shape[0] > 3 else x


class Undecided(nn.Module):
    """Decides by values, in Python: there is no graph of it."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x


class Moody(nn.Module):
    """Random, whatever the mode."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, training=True)


def pictures() -> Pictures:
    torch.manual_seed(0)
    net = Pictures()
    net.norm.running_mean = torch.linspace(-1, 1, 8)
    net.norm.running_var = torch.linspace(0.5, 2, 8)
    return net


def raises() -> None:
    raise RuntimeError("the factory is closed")
