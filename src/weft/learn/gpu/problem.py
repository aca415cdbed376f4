"""The problems of `problem` and `least_squares` with their rows on an accelerator; points stay on the host.

Solvers see no difference: they hand in a point and get sums back, in float64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from weft.learn.gpu.fused import can_fuse, fused_pass
from weft.learn.gpu.tables import TensorTable, numpy_of
from weft.learn.solvers.least_squares import LeastSquares
from weft.learn.solvers.problem import Problem, drawn_rows
from weft.learn.workers.group import sum_over_workers

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TensorProblem(Problem):
    """`table` is a TensorTable, `loss` a TensorLoss; `y` and `weights` are tensors on the same device."""

    table: Any
    y: Any
    weights: Any
    loss: Any

    def null_value(self) -> float:
        shape = (len(self.y), self.loss.outputs) if self.loss.outputs > 1 else (len(self.y),)
        margins = torch.zeros(shape, dtype=self.table.torch_dtype, device=self.table.device)
        return float(
            sum_over_workers([float(self.loss.value_and_slope(margins, self.y, self.weights)[0])])[0]
        )

    def weight(self) -> float:
        return float(sum_over_workers([float(self.weights.sum(dtype=torch.float64))])[0])

    def margins(self, point: Array, block: slice) -> Any:
        w, b = self.split(point)
        if self.fine and self.loss.outputs == 1 and self.table.dtype == np.float32:
            large = w[:, 0].astype(np.float32)
            parts = self.table.times(block, self._tensor(np.stack([large, w[:, 0] - large], axis=1)))
            return parts[:, 0] + parts[:, 1] + float(b[0])
        if self.loss.outputs == 1:
            return self.table.times(block, self._tensor(w[:, 0])) + float(b[0])
        return self.table.times(block, self._tensor(w)) + self._tensor(b)

    def value_and_gradient(self, point: Array) -> tuple[float, Array]:
        if not can_fuse(self.table, self.loss):
            return super().value_and_gradient(point)
        w, b = self.split(point)
        coef = self._tensor(np.append(w[:, 0], b[0] - self.table.shift @ w[:, 0]))

        def part(block: slice) -> tuple[Array]:
            rows = self.table.part(block)
            found = fused_pass(rows, coef, self.y[block], self.weights[block], self.loss.name)
            return (numpy_of(found),)

        (found,) = self.team.total(part, self.table.large_blocks())
        gradient, slopes, value = found[:-2], found[-2:-1], float(found[-1])
        return self.with_penalty(point, value, gradient - self.table.shift * slopes, slopes)

    def value_gradient_and_slopes(self, point: Array) -> tuple[float, Array, Any]:
        slopes: list[Tensor] = []

        def part(block: slice) -> tuple[float, Array, Any]:
            *found, slope = self._part(point, block)
            slopes.append(slope)
            return tuple(found)

        value, gradient, b_gradient = self.team.total(part, self.table.blocks())
        return *self.with_penalty(point, value, gradient, b_gradient), torch.cat(slopes)

    def _part(self, point: Array, block: slice) -> tuple[float, Array, Any, Any]:
        margins = self.margins(point, block)
        value, slope = self.loss.value_and_slope(margins, self.y[block], self.weights[block])
        total = numpy_of(slope.sum(0, dtype=torch.float64))
        return float(value), self.table.transposed_times(block, slope), np.atleast_1d(total), slope

    def curvatures(self, point: Array, block: slice) -> Any:
        return self.loss.curvatures(self.margins(point, block), self.y[block], self.weights[block])

    def _products(
        self, point: Array, block: slice, first: int, second: int, columns: Array | None
    ) -> tuple[Array, Array, Any]:
        curvature = self.curvatures(point, block)[:, first, second].abs()
        total = float(curvature.sum(dtype=torch.float64))
        return *self.table.gram(block, curvature, columns), total

    def _squares(self, point: Array, block: slice) -> tuple[Array, Any]:
        curvature = torch.diagonal(self.curvatures(point, block), dim1=1, dim2=2).contiguous()
        total = numpy_of(curvature.sum(0, dtype=torch.float64))
        return self.table.squares_times(block, curvature), total

    def sample(self, rows: int, random: np.random.RandomState) -> TensorProblem:
        (everyone,) = sum_over_workers([float(self.table.rows)])
        if 2 * rows >= everyone:
            return self
        chosen = drawn_rows(int(rows * self.table.rows / everyone), self.table.rows, random)
        there = torch.as_tensor(chosen, device=self.table.device)
        weights = self.weights[there]
        share = float(weights.sum(dtype=torch.float64))
        if not share > 0:
            return self
        scale = float(self.weights.sum(dtype=torch.float64)) / share
        return replace(self, table=self.table.take(chosen), y=self.y[there], weights=weights * scale)

    def _tensor(self, values: Array) -> Tensor:
        return torch.as_tensor(
            np.ascontiguousarray(values), dtype=self.table.torch_dtype, device=self.table.device
        )


@dataclass(frozen=True)
class TensorLeastSquares(LeastSquares):
    """The same for least squares; `targets` (rows, outputs) and `weights` are tensors."""

    table: Any
    targets: Any
    weights: Any

    def _gradient_part(self, w: Array, b: Array, block: slice) -> tuple[Array, Array, Array]:
        coef, bias = _like(self.table, w), _like(self.table, b)
        off = self.table.times(block, coef) + bias - self.targets[block]
        slope = off * self.weights[block][:, None]
        losses = numpy_of((slope.double() * off.double()).sum(0)) / 2
        total = numpy_of(slope.sum(0, dtype=torch.float64))
        return losses, self.table.transposed_times(block, slope), total

    def _normal_part(self, block: slice, even: bool) -> tuple[Any, ...]:
        weights, targets = self.weights[block], self.targets[block]
        slope = -targets if even else -targets * weights[:, None]
        return (
            *self.table.gram(block, None if even else weights),
            self.table.transposed_times(block, slope),
            numpy_of(slope.sum(0, dtype=torch.float64)),
            -numpy_of((slope.double() * targets.double()).sum(0)) / 2,
        )

    def weight(self) -> float:
        return float(self.weights.sum(dtype=torch.float64))


def _like(table: TensorTable, values: Array) -> Tensor:
    return torch.as_tensor(np.ascontiguousarray(values), dtype=table.torch_dtype, device=table.device)
