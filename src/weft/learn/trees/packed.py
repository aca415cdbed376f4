"""Trees packed for predictions, and the place where a model keeps them from one prediction to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from weft.learn.threads import ThreadTeam
from weft.learn.trees.growth.binning import rounded_down
from weft.learn.trees.kernels.walk import add_packed

Array = np.ndarray[Any, Any]
CHUNK = 1 << 14  # rows predicted by one task


@dataclass(frozen=True)
class PackedTrees:
    """All trees of a model as the arrays that `add_packed` reads."""

    roots: Array  # (trees,) int64
    depths: Array  # (trees,) int64
    columns: Array  # (trees,) int64: the first output that a tree adds to
    nodes: Array  # (nodes, 4) int32
    value: Array  # (nodes, outputs of a tree)

    def add_to(self, X: Any, out: Array, team: ThreadTeam | None = None) -> None:
        """Add what the trees say of each row of X, an array or a CSR matrix, to out[row, :], in C order."""
        bars = self.nodes.view(np.float32)

        def part(start: int) -> None:
            inside = slice(start, start + chunk)
            some = X[inside].toarray() if sparse.issparse(X) else X[inside]
            some = np.ascontiguousarray(some, np.float32)
            add_packed(some, self.roots, self.depths, self.columns, self.nodes, bars, self.value, out[inside])

        chunk = chunk_rows(X)
        if X.shape[0] <= chunk:
            part(0)
        else:
            list((team or ThreadTeam(1, None)).map(part, range(0, X.shape[0], chunk)))


def chunk_rows(X: Any) -> int:
    """Return the rows of one task: a part of a sparse table is as large as one of a dense table of 64 columns."""
    return CHUNK if not sparse.issparse(X) else max(64, min(CHUNK, 64 * CHUNK // max(1, X.shape[1])))


def pack(
    trees: Sequence[tuple[Array, Array, Array, Array, Array]], values: Sequence[Array], columns: Sequence[int]
) -> PackedTrees:
    """Pack trees of (feature, threshold, left, right, missing left), with values (nodes, outputs) of their nodes."""
    sizes = np.array([len(tree[0]) for tree in trees])
    ends = np.cumsum(sizes)
    roots, home = ends - sizes, np.repeat(np.arange(len(trees)), sizes)
    feature, threshold, left, right, missing_left = (
        np.concatenate([tree[part] for tree in trees]) for part in range(5)
    )
    inner = left >= 0
    # Children of the i-th inner node of a tree are numbered 2 i + 1 and 2 i + 2.
    rank: Array = np.cumsum(inner) - inner
    rank -= rank[roots][home]
    child = roots[home] + 1 + 2 * rank
    place = np.empty(len(home), np.int64)
    place[roots] = roots
    begin = roots[home][inner]
    place[begin + left[inner]], place[begin + right[inner]] = child[inner], child[inner] + 1
    nodes = np.empty((len(home), 4), np.int32)
    nodes[place, 0] = np.where(inner, feature, 0)
    nodes.view(np.float32)[place, 1] = rounded_down(np.where(inner, threshold, np.inf))
    nodes[place, 2] = np.where(inner, child, place)
    nodes[place, 3] = inner & ~missing_left.astype(bool)
    value = np.empty((len(home), values[0].shape[1]))
    value[place] = np.concatenate(values)
    return PackedTrees(roots, _depths(nodes[:, 2], roots), np.array(columns, np.int64), nodes, value)


def _depths(child: Array, roots: Array) -> Array:
    """Return how deep each tree is, from the left child of each node, or itself."""
    depths = np.zeros(len(roots), np.int64)
    deeper = np.empty(len(roots), bool)
    front, home = roots, np.arange(len(roots))
    while len(front):
        inner = child[front] != front
        front, home = child[front[inner]].astype(np.int64), home[inner]
        deeper[:] = False
        deeper[home] = True
        depths += deeper
        front, home = np.concatenate([front, front + 1]), np.concatenate([home, home])
    return depths


class PackedCache:
    """The packed trees of a model, made when it first predicts; copies and pickles of the model are without."""

    def __init__(self) -> None:
        self._kept: Any = None
        self._key: tuple[int, ...] = ()
        self._packed: Any = None

    def of(self, trees: Sequence[Any], make: Callable[[], Any]) -> Any:
        """Return what `make` made of these very trees."""
        key = (id(trees), len(trees), id(trees[-1]))
        if self._key != key:
            # What the key names is kept, so that nothing else can have its place.
            self._kept, self._packed, self._key = (trees, trees[-1]), make(), key
        return self._packed

    def __reduce__(self) -> Any:
        return PackedCache, ()
