"""A comparison of rows that run alone with the same rows in a batch, to find models whose rows see each other.

Requests of different callers may share a run only if no row changes the answer of another: a mean over the batch, a
batch normalisation in training mode or `if x.sum() > 0` would give wrong answers, and show one caller another's data.
The inputs are drawn from fixed seeds, so that equal models are judged equally: rows of both signs and of scales from
0.01 to 100, in batches of several sizes, each in two orders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.serve.server.models.onnx_runner import Runner
from weft.serve.server.protocols.tensors import BF16, REALS, Array, TensorSpec

Feeds = dict[str, Array]

# Rows of a batch, by turns: the sign of its values (0: both) and their scale.
_ROW_KINDS = ((0, 1.0), (1, 1.0), (-1, 1.0), (0, 0.01), (1, 100.0), (-1, 100.0), (0, 10.0), (1, 0.1))
_FREE_SIZES = (8, 64, 1)  # tried in turn for a size that requests choose, other than the number of rows
_TOKENS = 4  # whole numbers are drawn below this: they may be places in a small table
_WORDS = ("", "a", "Weft", "42", "ä", "two words", "no", "yes")
# Largest difference, as a share of the row's largest value, that other kernels for other batch sizes may cause.
_TOLERANCE = {"fp32": 1e-3, "fp16": 2e-2, "int8": 5e-2}


@dataclass(frozen=True)
class RowCheck:
    """The outcome of a comparison: rows are independent, are not, or could not be compared (None), and why."""

    independent: bool | None
    reason: str


def check_rows(runner: Runner, batch_sizes: Sequence[int]) -> RowCheck:
    """Compare rows alone and together, in one batch of each size and in that batch reversed."""
    failure = "there is nothing to draw"
    for free_size in _FREE_SIZES:
        try:
            for seed, rows in enumerate(batch_sizes):
                found = _compare(runner, random_rows(runner, rows, seed, free_size))
                if found:
                    return RowCheck(False, found)
            return RowCheck(True, f"rows alone and in batches of {_listed(batch_sizes)} agree")
        except Exception as error:  # a model may refuse drawn values by any exception
            failure = str(error) or type(error).__name__
        if not _has_free_sizes(runner):
            break
    return RowCheck(None, f"rows could not be compared: {failure[:200]}")


def random_rows(runner: Runner, rows: int, seed: int, free_size: int = 8) -> Feeds:
    """Return inputs of a model for a number of rows, drawn from a seed."""
    draw = np.random.default_rng(seed)
    return {spec.name: _draw(spec, _shape(runner, spec, rows, free_size), draw) for spec in runner.inputs}


def _shape(runner: Runner, spec: TensorSpec, rows: int, free_size: int) -> tuple[int, ...]:
    shape = [rows, *spec.shape[1:]]
    picture, tokens = runner.card.picture, runner.card.tokens
    if picture is not None and len(shape) == 4:
        high = 2 if picture.layout == "NCHW" else 1
        shape[high : high + 2] = [picture.height, picture.width]
    if tokens is not None:
        free_size = min(free_size, tokens.limit)
    return tuple(free_size if size == -1 else size for size in shape)


def _draw(spec: TensorSpec, shape: tuple[int, ...], draw: np.random.Generator) -> Array:
    if spec.datatype == "BOOL":
        return draw.random(shape) < 0.5
    if spec.datatype == "BYTES":
        return np.array(_WORDS, np.object_)[draw.integers(0, len(_WORDS), shape)]
    if spec.datatype not in REALS:
        most = 256 if spec.datatype == "UINT8" and len(shape) == 4 else _TOKENS
        return draw.integers(0, most, shape).astype(spec.kind)
    values = draw.standard_normal(shape)
    for place in range(shape[0]):
        sign, scale = _ROW_KINDS[place % len(_ROW_KINDS)]
        values[place] = scale * (sign * np.abs(values[place]) if sign else values[place])
    return values.astype(spec.kind)


def _compare(runner: Runner, feeds: Feeds) -> str:
    """Return what differs between rows alone and together; nothing where all agree."""
    rows = len(next(iter(feeds.values())))
    alone = [runner.run({name: array[row : row + 1] for name, array in feeds.items()}) for row in range(rows)]
    together = runner.run(feeds)
    reversed_ = runner.run({name: np.ascontiguousarray(array[::-1]) for name, array in feeds.items()})
    tolerance = _tolerance(runner)
    for place, spec in enumerate(runner.outputs):
        for outputs, order in ((together, range(rows)), (reversed_, range(rows - 1, -1, -1))):
            if outputs[place].ndim == 0 or len(outputs[place]) != rows:
                return f"{spec.name!r} has not one answer a row"
            for at, row in enumerate(order):
                if not agrees(alone[row][place], outputs[place][at : at + 1], tolerance):
                    return f"rows change each other's answers: {spec.name!r} differs in a batch of {rows}"
    return ""


def agrees(alone: Array, together: Array, tolerance: float) -> bool:
    """Return whether two answers are equal up to a share of their largest value; other types must be the same."""
    if alone.shape != together.shape:
        return False
    if alone.dtype.kind != "f" and alone.dtype != BF16:
        return bool(np.array_equal(alone, together))
    one, other = alone.astype(np.float64), together.astype(np.float64)
    finite = np.abs(one[np.isfinite(one)])
    bound = tolerance * (float(finite.max()) if finite.size else 0.0)
    return bool(np.allclose(one, other, rtol=0.0, atol=bound + 1e-7, equal_nan=True))


def _tolerance(runner: Runner) -> float:
    specs: tuple[Any, ...] = (*runner.inputs, *runner.outputs)
    half = any(spec.datatype in ("FP16", "BF16") for spec in specs)
    return max(_TOLERANCE[runner.card.precision], _TOLERANCE["fp16"] if half else 0.0)


def _has_free_sizes(runner: Runner) -> bool:
    return any(-1 in spec.shape[1:] for spec in runner.inputs)


def _listed(sizes: Sequence[int]) -> str:
    *others, last = map(str, sizes)
    return f"{', '.join(others)} and {last}" if others else last
