"""The losses of linear models: values, first and second derivatives by the margins, and their part of the dual."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.special import entr, softmax

from weft.learn.kernels import loss as loss_kernels

Array = np.ndarray[Any, Any]


class Loss(Protocol):
    """A sum over rows: weights_i * loss(y_i, margins_i), convex in the margins."""

    @property
    def name(self) -> str: ...

    @property
    def outputs(self) -> int:
        """The number of margins of a row."""
        ...

    @property
    def quadratic(self) -> bool:
        """Whether second derivatives are the same at every point."""
        ...

    def null_value(self, y: Array, weights: Array) -> float:
        """Return the sum of losses where all margins are zero."""
        ...

    def value_and_slope(self, margins: Array, y: Array, weights: Array) -> tuple[float, Array]:
        """Return the sum of losses, and the derivatives by the margins in the shape of the margins."""
        ...

    def curvatures(self, margins: Array, y: Array, weights: Array) -> Array:
        """Return second derivatives: (rows,) for one output, (rows, outputs, outputs) for several."""
        ...

    def dual_value(self, slope: Array, y: Array, weights: Array) -> float:
        """Return minus the convex conjugate at `slope`: the part that the loss has in the dual objective."""
        ...


@dataclass(frozen=True)
class Logistic:
    """The logistic loss: log(1 + exp(-y * margin)), y = -1 or 1."""

    name: str = "logistic"
    outputs: int = 1
    quadratic: bool = False

    def null_value(self, y: Array, weights: Array) -> float:
        return math.log(2) * float(weights.sum(dtype=np.float64))

    def value_and_slope(self, margins: Array, y: Array, weights: Array) -> tuple[float, Array]:
        slope = np.empty_like(margins)
        return loss_kernels.logistic(margins, y, weights, slope), slope

    def curvatures(self, margins: Array, y: Array, weights: Array) -> Array:
        curvature = np.empty_like(margins)
        loss_kernels.logistic_curvature(margins, y, weights, curvature)
        return curvature

    def dual_value(self, slope: Array, y: Array, weights: Array) -> float:
        share = _shares(slope, weights)
        return float(np.dot(weights, entr(share) + entr(np.maximum(1 - share, 0))))


@dataclass(frozen=True)
class SquaredHinge:
    """The squared hinge: max(0, 1 - y * margin)², y = -1 or 1."""

    name: str = "squared_hinge"
    outputs: int = 1
    quadratic: bool = False

    def null_value(self, y: Array, weights: Array) -> float:
        return float(weights.sum(dtype=np.float64))

    def value_and_slope(self, margins: Array, y: Array, weights: Array) -> tuple[float, Array]:
        slope = np.empty_like(margins)
        return loss_kernels.squared_hinge(margins, y, weights, slope), slope

    def curvatures(self, margins: Array, y: Array, weights: Array) -> Array:
        curvature = np.empty_like(margins)
        loss_kernels.squared_hinge_curvature(margins, y, weights, curvature)
        return curvature

    def dual_value(self, slope: Array, y: Array, weights: Array) -> float:
        share = _shares(slope, weights)
        return float(np.dot(weights, share - share * share / 4))


@dataclass(frozen=True)
class Squared:
    """Half the squared error: (margin - y)² / 2."""

    name: str = "squared"
    outputs: int = 1
    quadratic: bool = True

    def null_value(self, y: Array, weights: Array) -> float:
        return float(np.dot(weights.astype(np.float64), np.square(y, dtype=np.float64))) / 2

    def value_and_slope(self, margins: Array, y: Array, weights: Array) -> tuple[float, Array]:
        off = margins - y
        slope = weights * off
        return float(np.dot(slope.astype(np.float64), off)) / 2, slope

    def curvatures(self, margins: Array, y: Array, weights: Array) -> Array:
        return weights

    def dual_value(self, slope: Array, y: Array, weights: Array) -> float:
        slope = slope.astype(np.float64)
        return -float(slope @ y) - float(slope @ (slope / np.where(weights > 0, weights, 1))) / 2


@dataclass(frozen=True)
class Multinomial:
    """The multinomial logistic loss: -log softmax(margins)[y], y a class code."""

    outputs: int
    name: str = "multinomial"
    quadratic: bool = False

    def null_value(self, y: Array, weights: Array) -> float:
        return math.log(self.outputs) * float(weights.sum(dtype=np.float64))

    def value_and_slope(self, margins: Array, y: Array, weights: Array) -> tuple[float, Array]:
        slope = np.empty_like(margins)
        return loss_kernels.multinomial(margins, y, weights, slope), slope

    def shares(self, margins: Array) -> Array:
        """Return the shares of the classes, (rows, outputs)."""
        slope = np.empty_like(margins)
        rows = len(margins)
        loss_kernels.multinomial(
            margins, np.full(rows, -1, margins.dtype), np.ones(rows, margins.dtype), slope
        )
        return slope

    def pair_curvature(self, margins: Array, weights: Array, first: int, second: int) -> Array:
        """Return the size of the second derivatives between two outputs, (rows,)."""
        shares = self.shares(margins)
        other = 1 - shares[:, first] if first == second else shares[:, second]
        sizes: Array = shares[:, first] * other * weights
        return sizes

    def curvatures(self, margins: Array, y: Array, weights: Array) -> Array:
        shares = softmax(margins, axis=1)
        curvature = -shares[:, :, None] * shares[:, None, :]
        each = np.arange(self.outputs)
        curvature[:, each, each] += shares
        scaled: Array = curvature * weights[:, None, None]
        return scaled

    def dual_value(self, slope: Array, y: Array, weights: Array) -> float:
        shares = slope / np.where(weights > 0, weights, 1)[:, None]
        shares[np.arange(len(y)), y.astype(np.intp)] += 1
        return float(np.dot(weights, entr(np.clip(shares, 0, 1)).sum(axis=1)))


def _shares(slope: Array, weights: Array) -> Array:
    """Return |slope| / weight: how much of its weight each row has in the dual."""
    return np.abs(slope) / np.where(weights > 0, weights, 1)
