"""Predictions: rows down packed trees, eight side by side, so that one waits for memory while the others go on.

A node is four numbers of 32 bits, beside each other: the feature, the bar (the bits of a float32), the left child, and
whether missing values go right. The right child comes after the left one. A leaf is its own left child, and its bar is
infinite: rows that have arrived stay, so that all rows can take as many steps as the tree is deep.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel

Array = Any  # inside compiled code the types are Numba's

MISSING = 255  # the code of NaN
CACHED = 8192  # numbers of a block of rows, which stay in the nearest cache


@inlined
def _step(own: Array, node: Any, nodes: Array, bars: Array) -> Any:
    """Return the child that a row goes to."""
    x = own[np.uint32(nodes[node, 0])]
    right = (x > bars[node, 1]) | ((x != x) & (nodes[node, 3] != 0))
    return np.uint32(nodes[node, 2]) + np.uint32(right)


@inlined
def _arrived(nodes: Array, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any) -> bool:
    """Return whether all eight are leaves."""
    here: Any = (nodes[a, 2] == a) & (nodes[b, 2] == b) & (nodes[c, 2] == c) & (nodes[d, 2] == d)
    here &= (nodes[e, 2] == e) & (nodes[f, 2] == f) & (nodes[g, 2] == g) & (nodes[h, 2] == h)
    return here  # type: ignore[no-any-return]


@scalar_kernel
def add_packed(
    X: Array,
    roots: Array,
    depths: Array,
    columns: Array,
    nodes: Array,
    bars: Array,
    value: Array,
    out: Array,
) -> None:
    """Add value[leaf, :] of each tree to out[row, columns[tree]:]; `bars` is the memory of `nodes`, as float32."""
    rows, many = X.shape[0], value.shape[1]
    block = max(64, CACHED // (X.shape[1] + 1)) & -8
    for start in range(0, rows, block):
        stop = min(start + block, rows)
        for tree in range(roots.shape[0]):
            root, depth, column = np.uint32(roots[tree]), depths[tree], columns[tree]
            for row in range(start, stop - 7, 8):
                a = b = c = d = e = f = g = h = root
                for taken in range(depth):
                    if taken & 15 == 15 and _arrived(nodes, a, b, c, d, e, f, g, h):
                        break  # of a deep tree few branches are
                    a = _step(X[row], a, nodes, bars)
                    b = _step(X[row + 1], b, nodes, bars)
                    c = _step(X[row + 2], c, nodes, bars)
                    d = _step(X[row + 3], d, nodes, bars)
                    e = _step(X[row + 4], e, nodes, bars)
                    f = _step(X[row + 5], f, nodes, bars)
                    g = _step(X[row + 6], g, nodes, bars)
                    h = _step(X[row + 7], h, nodes, bars)
                for k in range(many):
                    out[row, column + k] += value[a, k]
                    out[row + 1, column + k] += value[b, k]
                    out[row + 2, column + k] += value[c, k]
                    out[row + 3, column + k] += value[d, k]
                    out[row + 4, column + k] += value[e, k]
                    out[row + 5, column + k] += value[f, k]
                    out[row + 6, column + k] += value[g, k]
                    out[row + 7, column + k] += value[h, k]
            for row in range(stop - (stop - start) % 8, stop):
                node = root
                for _ in range(depth):
                    node = _step(X[row], node, nodes, bars)
                for k in range(many):
                    out[row, column + k] += value[node, k]


@inlined
def _coded_step(codes: Array, row: Any, node: Any, nodes: Array, bars: Array) -> Any:
    """Return the child that a row of bin codes goes to."""
    feature = np.uint32(nodes[node, 0])
    code = codes[feature >> np.uint32(3), row, feature & np.uint32(7)]
    absent = code == MISSING
    right = ((np.float32(code) > bars[node, 1]) & ~absent) | (absent & (nodes[node, 3] != 0))
    return np.uint32(nodes[node, 2]) + np.uint32(right)


@scalar_kernel
def add_coded(
    codes: Array,
    rows: Array,
    first: int,
    last: int,
    depth: int,
    nodes: Array,
    bars: Array,
    value: Array,
    out: Array,
) -> None:
    """Add value[leaf] of a tree whose bars are bins to out[row], of rows[first:last]; codes[group, row, column]."""
    for i in range(first, last - 3, 4):
        p, q, r, s = (
            np.uint32(rows[i]),
            np.uint32(rows[i + 1]),
            np.uint32(rows[i + 2]),
            np.uint32(rows[i + 3]),
        )
        a = b = c = d = np.uint32(0)
        for _ in range(depth):
            a = _coded_step(codes, p, a, nodes, bars)
            b = _coded_step(codes, q, b, nodes, bars)
            c = _coded_step(codes, r, c, nodes, bars)
            d = _coded_step(codes, s, d, nodes, bars)
        out[p] += value[a, 0]
        out[q] += value[b, 0]
        out[r] += value[c, 0]
        out[s] += value[d, 0]
    for i in range(last - (last - first) % 4, last):
        p, a = np.uint32(rows[i]), np.uint32(0)
        for _ in range(depth):
            a = _coded_step(codes, p, a, nodes, bars)
        out[p] += value[a, 0]
