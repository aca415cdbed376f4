"""Values to codes: which bin a value falls in, for a block of rows at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import scalar_kernel

Array = Any  # inside compiled code the types are Numba's

MISSING = 255  # the code of NaN
BLOCK = 256  # rows whose values stay in the cache while their columns are coded


@scalar_kernel
def code_columns(values: Array, cuts: Array, first: int, codes: Array) -> int:
    """Write codes[column, first + row] of dense rows; returns the place of an infinite value, or -1.

    `cuts` is (columns, 256) float32, ascending, filled up with infinity: a code is how many cuts lie below the value.
    The search takes eight steps without a branch, for four rows at a time.
    """
    rows, columns = values.shape
    bad = -1
    for start in range(0, rows, BLOCK):
        stop = start + BLOCK if start + BLOCK < rows else rows
        for column in range(columns):
            edges = cuts[column]
            for row in range(start, stop):
                x = np.float32(values[row, column])
                place = 0
                place += 128 * (edges[place + 127] < x)
                place += 64 * (edges[place + 63] < x)
                place += 32 * (edges[place + 31] < x)
                place += 16 * (edges[place + 15] < x)
                place += 8 * (edges[place + 7] < x)
                place += 4 * (edges[place + 3] < x)
                place += 2 * (edges[place + 1] < x)
                place += edges[place] < x
                code = place if x == x else MISSING
                if x - x != 0.0 and x == x:
                    bad = row * columns + column
                codes[column, first + row] = code
    return bad


@scalar_kernel
def group_columns(columns: Array, first: int, groups: Array) -> None:
    """Put columns of codes side by side, eight to a group: groups[group, first + row] is a byte for each of them."""
    count, rows = columns.shape
    for group in range(groups.shape[0]):
        for row in range(rows):
            word = np.uint64(0)
            for k in range(8 if count - 8 * group > 8 else count - 8 * group):
                word |= np.uint64(columns[8 * group + k, row]) << np.uint64(8 * k)
            groups[group, first + row] = word
