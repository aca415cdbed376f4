"""One read of a dense table in C order: margins, losses and gradient of a few rows while they are in the cache.

A table taller than the cache is read at the speed of memory, and that is all the time a pass takes. Sums over a stretch
of rows are in the table's type, and those of stretches in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import kernel
from weft.learn.kernels.loss import logistic_row32, logistic_row64

Array = Any  # inside compiled code the types are Numba's

TILE = 16  # rows that are read again from the nearest cache
STRETCH = 64  # tiles whose gradient is added up in the table's type


@kernel
def logistic_pass(
    values: Array, w: Array, offset: Any, y: Array, weights: Array, gradient: Array
) -> tuple[float, float]:
    """The sum of losses and that of slopes; the gradient is added to."""
    rows, columns = values.shape
    margins, slopes = np.empty(TILE, values.dtype), np.empty(TILE, values.dtype)
    part = np.zeros(columns, values.dtype)
    total = push = 0.0
    # Written out here: views of a few rows, handed to functions, would take as long as the work on them.
    for tile in range((rows + TILE - 1) // TILE):
        top = tile * TILE
        height = min(TILE, rows - top)
        i = 0
        while i + 3 < height:
            a = b = c = d = values.dtype.type(0)
            for j in range(columns):
                a += values[top + i, j] * w[j]
                b += values[top + i + 1, j] * w[j]
                c += values[top + i + 2, j] * w[j]
                d += values[top + i + 3, j] * w[j]
            margins[i], margins[i + 1], margins[i + 2], margins[i + 3] = a, b, c, d
            i += 4
        while i < height:
            a = values.dtype.type(0)
            for j in range(columns):
                a += values[top + i, j] * w[j]
            margins[i] = a
            i += 1
        if values.itemsize == 4:
            for i in range(height):
                loss, share = logistic_row32(y[top + i] * (margins[i] + offset))
                total += weights[top + i] * loss
                slopes[i] = -y[top + i] * weights[top + i] * share
        else:
            for i in range(height):
                wide, portion = logistic_row64(y[top + i] * (margins[i] + offset))
                total += weights[top + i] * wide
                slopes[i] = -y[top + i] * weights[top + i] * portion
        i = 0
        while i + 3 < height:
            a, b, c, d = slopes[i], slopes[i + 1], slopes[i + 2], slopes[i + 3]
            push += a + b + c + d
            for j in range(columns):
                part[j] += (
                    a * values[top + i, j]
                    + b * values[top + i + 1, j]
                    + c * values[top + i + 2, j]
                    + d * values[top + i + 3, j]
                )
            i += 4
        while i < height:
            push += slopes[i]
            for j in range(columns):
                part[j] += slopes[i] * values[top + i, j]
            i += 1
        if tile % STRETCH == STRETCH - 1:
            for j in range(columns):
                gradient[j] += part[j]
                part[j] = 0
    for j in range(columns):
        gradient[j] += part[j]
    return total, push
