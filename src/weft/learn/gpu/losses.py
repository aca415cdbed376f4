"""The losses of `losses`, on tensors. Slopes and curvatures are in the type of the margins, values in float64."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor


@dataclass(frozen=True)
class TensorLoss:
    """One output: "logistic", "squared_hinge", "squared" or "hinge"; several: "multinomial"."""

    name: str
    outputs: int = 1
    quadratic: bool = False
    width: float = 1.0  # of the stretch below a margin of 1 where the hinge is rounded off

    def value_and_slope(self, margins: Tensor, y: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        if self.name == "logistic":
            values = F.softplus(-y * margins, threshold=30.0)
            slope = -y * weights * torch.sigmoid(-y * margins)
        elif self.name == "squared_hinge":
            short = (1 - y * margins).clamp(min=0)
            values, slope = short.square(), -2 * y * weights * short
        elif self.name == "hinge":
            short = (1 - y * margins).clamp(min=0)
            share = (short / self.width).clamp(max=1)
            values, slope = share * (short - share * (self.width / 2)), -y * weights * share
        elif self.name == "squared":
            off = margins - y
            values, slope = off.square() / 2, weights * off
        else:
            codes = y.long()
            logs = torch.log_softmax(margins, 1)
            values = -logs.gather(1, codes[:, None])[:, 0]
            slope = logs.exp()
            slope[torch.arange(len(codes), device=codes.device), codes] -= 1
            slope = slope * weights[:, None]
        return (weights.double() * values.double()).sum(), slope

    def curvatures(self, margins: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """(rows, outputs, outputs)."""
        if self.name == "multinomial":
            shares = torch.softmax(margins, 1)
            found = torch.diag_embed(shares) - shares[:, :, None] * shares[:, None, :]
            return found * weights[:, None, None]
        if self.name == "logistic":
            share = torch.sigmoid(margins)
            found = weights * share * (1 - share)
        elif self.name == "squared_hinge":
            found = 2 * weights * (y * margins < 1)
        elif self.name == "hinge":
            short = 1 - y * margins
            found = weights / self.width * ((short > 0) & (short < self.width))
        else:
            found = weights
        return found.to(margins.dtype)[:, None, None]

    def dual_value(self, slope: Tensor, y: Tensor, weights: Tensor) -> float:
        """Minus the conjugate at minus `slope`: the loss's part of the dual objective."""
        weights = weights.double()
        whole = torch.where(weights > 0, weights, 1.0)
        if self.name == "multinomial":
            shares = slope.double() / whole[:, None]
            shares[torch.arange(len(y), device=y.device), y.long()] += 1
            found = torch.special.entr(shares.clamp(0, 1)).sum(1)
        elif self.name == "squared":
            slope = slope.double()
            return float(-(slope @ y.double()) - slope @ (slope / whole) / 2)
        else:
            share = slope.double().abs() / whole
            if self.name == "logistic":
                found = torch.special.entr(share) + torch.special.entr((1 - share).clamp(min=0))
            elif self.name == "squared_hinge":
                found = share - share * share / 4
            else:
                found = share  # of the hinge as it is, not rounded off
        return float(weights @ found)
