"""The smooth objective of a linear model, its derivatives by one pass over the data, and samples of its rows.

    f(W, b) = sum_i weights_i * loss(y_i, x_i W + b) + l2 / 2 * |W|² + b_l2 / 2 * |b|²

W is (columns, outputs). A point is one flat vector: W row by row, then b if there is an intercept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from weft.learn.solvers.losses import Loss, Multinomial
from weft.learn.tables.tables import DenseTable, MappedTable, SparseTable, Table, explain_sums
from weft.learn.threads import ThreadTeam, add_up
from weft.learn.workers.group import sum_over_workers

Array = np.ndarray[Any, Any]
RUN = 32  # neighbouring rows sampled together: reading them costs about as much as reading a single row


@dataclass(frozen=True)
class Problem:
    """Data, loss and L2 penalty of a smooth problem, and the threads that read the data."""

    table: Table
    y: Array
    weights: Array
    loss: Loss
    l2: float
    intercept: bool
    team: ThreadTeam
    b_l2: float = 0.0  # L2 penalty of the intercept, as in scikit-learn's LinearSVC
    fine: bool = False  # margins of a float32 table use all digits of float64 coefficients; for one output

    @property
    def size(self) -> int:
        """The number of unknowns."""
        return (self.table.columns + self.intercept) * self.loss.outputs

    @cached_property
    def row_products(self) -> Array:
        """X Xᵀ of a wide dense table in memory, (rows, rows), in float64."""
        assert isinstance(self.table, DenseTable)
        values = self.table.values - self.table.shift if self.table.shift.any() else self.table.values
        products: Array = (values @ values.T).astype(np.float64)
        if not np.isfinite(products).all():
            explain_sums(self.table)
        return products

    @cached_property
    def flat(self) -> Any:
        """Directions in which no margin changes, (unknowns of an output, directions); None where none are known.

        A coefficient more for all columns of one one-hot group, and less for those of another or for the intercept,
        is such a direction. There only penalties tell points apart.
        """
        groups = self.table.one_hot if isinstance(self.table, SparseTable) and self.l2 > 0 else []
        if len(groups) < 2 - self.intercept:
            return None
        side = self.table.columns + self.intercept
        moves = sparse.lil_array((len(groups), side))
        for row, group in enumerate(groups):
            moves[row, group.start : group.stop] = 1 / group.value
        if self.intercept:
            moves[:, side - 1] = -1
            return moves.T.tocsr()
        return (moves[1:] - moves[[0] * (len(groups) - 1)]).T.tocsr()

    def null_value(self) -> float:
        """Return the objective at zero, over all workers."""
        return float(sum_over_workers([self.loss.null_value(self.y, self.weights)])[0])

    def weight(self) -> float:
        """Return the sum of the weights of all workers' rows."""
        return float(sum_over_workers([float(self.weights.sum(dtype=np.float64))])[0])

    def split(self, point: Array) -> tuple[Array, Array]:
        """Return W (columns, outputs) and b (outputs,) of a point; b is zero where there is no intercept."""
        columns, outputs = self.table.columns, self.loss.outputs
        whole = point.reshape(-1, outputs)
        b = whole[columns] if self.intercept else np.zeros(outputs)
        return whole[:columns], b

    def margins(self, point: Array, block: slice) -> Array:
        """Return X W + b of the rows of a block: (rows,) for one output, else (rows, outputs)."""
        w, b = self.split(point)
        w = w[:, 0] if self.loss.outputs == 1 else w
        if self.fine and self.table.dtype == np.float32 and w.ndim == 1:
            margins = self._fine_margins(w, block)
        else:
            margins = self.table.times(block, w.astype(self.table.dtype))
        margins += (b[0] if self.loss.outputs == 1 else b).astype(self.table.dtype)
        return margins

    def _fine_margins(self, w: Array, block: slice) -> Array:
        """Return X w with w split into two float32 vectors, leading and trailing digits, in one read of the table."""
        large = w.astype(np.float32)
        parts = self.table.times(block, np.stack([large, (w - large).astype(np.float32)], axis=1))
        return np.ascontiguousarray(parts[:, 0] + parts[:, 1])

    def value_and_gradient(self, point: Array) -> tuple[float, Array]:
        """Return the objective and its gradient, over all workers."""
        return self.with_penalty(point, *self.team.total(*self._pass(point)))

    def rough_gradient(self, point: Array, every: int) -> Array:
        """Return an estimate of the gradient from one in `every` blocks."""
        part, _ = self._pass(point)
        blocks = self.table.blocks()
        some = blocks[every // 2 :: every] or blocks[:1]
        *found, seen = self.team.total(lambda block: (*part(block), float(block.stop - block.start)), some)
        (everyone,) = sum_over_workers([float(self.table.rows)])
        return self.with_penalty(point, *(everyone / seen * each for each in found))[1]

    def _pass(self, point: Array) -> tuple[Callable[[slice], tuple[float, Array, Any]], Sequence[slice]]:
        """Return the function that gives loss, gradient and intercept gradient of a block, and the blocks."""
        blocks = self.table.blocks()
        if not self._in_one_read():
            return lambda block: self._part(point, block)[:3], blocks
        return self._one_read(point), blocks if isinstance(self.table, MappedTable) else larger(blocks)

    def _in_one_read(self) -> bool:
        """Return whether a kernel computes margins and gradient in one read of each row."""
        table = self.table
        return (
            isinstance(table, DenseTable)
            and table.by_rows
            and self.loss.name == "logistic"
            and not (self.fine and table.dtype == np.float32)
        )

    def _one_read(self, point: Array) -> Callable[[slice], tuple[float, Array, Any]]:
        from weft.learn.kernels.passes import logistic_pass  # here, because Numba may be missing

        table, y, weights = self.table, self.y, self.weights
        assert isinstance(table, DenseTable)
        w, b = self.split(point)
        coef = w[:, 0].astype(table.dtype)
        offset = table.dtype.type(b[0] - float(table.shift @ coef))

        def part(block: slice) -> tuple[float, Array, Any]:
            values, gradient = table.values[block], np.zeros(table.columns)
            value, push = logistic_pass(values, coef, offset, y[block], weights[block], gradient)
            return value, gradient - push * table.shift, np.array([push])

        return part

    def value_gradient_and_slopes(self, point: Array) -> tuple[float, Array, Array]:
        """Return the objective, its gradient, and the derivatives of the loss by the margins of this worker's rows."""
        slopes: list[Array] = []

        def parts() -> Iterator[tuple[float, Array, Any]]:
            for *summands, slope in self.team.map(
                lambda block: self._part(point, block), self.table.blocks()
            ):
                slopes.append(slope)
                yield tuple(summands)

        value, gradient, b_gradient = sum_over_workers(add_up(parts()))
        return *self.with_penalty(point, value, gradient, b_gradient), np.concatenate(slopes)

    def _part(self, point: Array, block: slice) -> tuple[float, Array, Any, Array]:
        """Return the loss of a block, its gradients by W and by b, and the slopes by the margins."""
        margins = self.margins(point, block)
        value, slope = self.loss.value_and_slope(margins, self.y[block], self.weights[block])
        return (
            value,
            self.table.transposed_times(block, slope),
            slope.sum(axis=0, dtype=np.float64),
            slope,
        )

    def with_penalty(
        self, point: Array, value: float, gradient: Array, b_gradient: Any
    ) -> tuple[float, Array]:
        """Return a loss and its gradient with the L2 penalties added; raise where they are not finite."""
        if not np.isfinite(value) or not np.isfinite(gradient).all():
            explain_sums(self.table)
        w, b = self.split(point)
        value += self.l2 / 2 * float(np.vdot(w, w)) + self.b_l2 / 2 * float(b @ b)
        gradient = (gradient.reshape(w.shape) + self.l2 * w).ravel()
        return value, np.concatenate([gradient, b_gradient + self.b_l2 * b]) if self.intercept else gradient

    def curvatures(self, point: Array, block: slice) -> Array:
        """Return second derivatives of the loss by the margins: (rows, outputs, outputs), also for one output."""
        curvature = self.loss.curvatures(self.margins(point, block), self.y[block], self.weights[block])
        return curvature.reshape(-1, self.loss.outputs, self.loss.outputs)

    def hessian(self, point: Array, first: int, second: int, columns: Array | None = None) -> Array:
        """Return the second derivatives between two outputs, of all columns or some; the intercept is last."""
        gram: Array
        gram, cross, whole = self.team.total(
            lambda block: self._products(point, block, first, second, columns), self.table.blocks()
        )
        count = len(gram)
        if self.intercept:
            gram = np.block([[gram, cross[:, None]], [cross[None, :], np.full((1, 1), whole + self.b_l2)]])
        if first != second:
            return -gram  # without penalties: b_l2 is for one output only
        gram[np.arange(count), np.arange(count)] += self.l2
        return gram

    def _products(
        self, point: Array, block: slice, first: int, second: int, columns: Array | None
    ) -> tuple[Array, Array, Any]:
        loss = self.loss
        if isinstance(loss, Multinomial):
            margins, weights = self.margins(point, block), self.weights[block]
            curvature = loss.pair_curvature(margins, weights, first, second)
        else:
            curvature = np.abs(self.curvatures(point, block)[:, first, second])  # all rows have one sign
        return *self.table.gram(block, curvature, columns), curvature.sum(dtype=np.float64)

    def whole_hessian(self, point: Array, columns: Array | None = None) -> Array:
        """Return the second derivatives of all unknowns, (size, size) in the order of a point."""
        outputs = self.loss.outputs
        if outputs == 1:
            return self.hessian(point, 0, 0, columns)
        side = (self.table.columns if columns is None else len(columns)) + self.intercept
        if isinstance(self.loss, Multinomial) and isinstance(self.table, DenseTable):
            return self._multinomial_hessian(self.loss, point, columns)
        whole = np.empty((side, outputs, side, outputs))
        for first in range(outputs):
            for second in range(first + 1):
                whole[:, first, :, second] = self.hessian(point, first, second, columns)
                whole[:, second, :, first] = whole[:, first, :, second]
        return whole.reshape(side * outputs, -1)

    def _multinomial_hessian(self, loss: Multinomial, point: Array, columns: Array | None) -> Array:
        """Return the second derivatives between all columns and classes by one pass, as two products for each block.

        With shares p of the classes, they are the sum over rows of x xᵀ ⊗ (diag(p) - p pᵀ), times the weights: the
        second part is a product of x ⊗ p with itself.
        """

        def part(block: slice) -> tuple[Array, Array]:
            table = self.table
            assert isinstance(table, DenseTable)
            x = table.read(block, columns)
            if self.intercept:
                x = np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)
            shares = loss.shares(self.margins(point, block))
            root = np.sqrt(self.weights[block])[:, None]
            each = (x[:, :, None] * (shares * root)[:, None, :]).reshape(len(x), -1)
            own = x.T @ (each * root)
            return own.astype(np.float64), (each.T @ each).astype(np.float64)

        own, whole = self.team.total(part, self.table.blocks())
        side, outputs = len(own), self.loss.outputs
        hessian: Array = -whole.reshape(side, outputs, side, outputs)
        penalty = self.l2 * np.eye(side)
        if self.intercept:
            penalty[-1, -1] = 0.0
        for k in range(outputs):
            hessian[:, k, :, k] += own.reshape(side, side, outputs)[:, :, k] + penalty
        return hessian.reshape(side * outputs, -1)

    def diagonal(self, point: Array) -> Array:
        """Return the diagonal of the second derivatives, in the order of a point."""
        squares, whole = self.team.total(lambda block: self._squares(point, block), self.table.blocks())
        diagonal = (squares + self.l2).ravel()
        return np.concatenate([diagonal, whole + self.b_l2]) if self.intercept else diagonal

    def _squares(self, point: Array, block: slice) -> tuple[Array, Any]:
        each = np.arange(self.loss.outputs)
        curvature = self.curvatures(point, block)[:, each, each]
        return self.table.squares_times(block, curvature), curvature.sum(axis=0, dtype=np.float64)

    def sample(self, rows: int, random: np.random.RandomState) -> Problem:
        """Return the problem on about `rows` rows of all workers, weighted to the total of all rows.

        It is the whole problem where the sample would be half of the rows or more, or weigh nothing.
        """
        (everyone,) = sum_over_workers([float(self.table.rows)])
        if 2 * rows >= everyone:
            return self
        chosen = drawn_rows(int(rows * self.table.rows / everyone), self.table.rows, random)
        weights = self.weights[chosen]
        share = float(weights.sum(dtype=np.float64))
        if not sum_over_workers([share])[0] > 0:
            return self
        scale = float(self.weights.sum(dtype=np.float64)) / share if share else 0.0
        return replace(
            self,
            table=self.table.take(chosen),
            y=self.y[chosen],
            weights=(weights * scale).astype(weights.dtype),
        )


def drawn_rows(count: int, rows: int, random: np.random.RandomState) -> Array:
    """Return the numbers of about `count` rows, in runs of neighbours."""
    if rows < RUN:  # a worker with few rows
        return np.arange(rows)
    starts = np.sort(random.choice(rows // RUN, max(1, count // RUN), replace=False)) * RUN
    drawn: Array = (starts[:, None] + np.arange(RUN)).ravel()
    return drawn


def larger(blocks: Sequence[slice]) -> list[slice]:
    """Join neighbouring blocks where there are many: a block that is read once need not fit the cache."""
    step = min(8, max(1, len(blocks) // 32))
    firsts = range(0, len(blocks), step)
    return [slice(blocks[i].start, blocks[min(i + step, len(blocks)) - 1].stop) for i in firsts]
