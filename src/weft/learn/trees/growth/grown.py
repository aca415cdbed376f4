"""A grown tree as data: cuts by bin, thresholds, and which rows ended where."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.learn.trees.growth.binning import Bins
from weft.learn.trees.growth.stored import StoredBins
from weft.learn.trees.kernels.depth import BIN, DEPTH, FEATURE, LEFT, NEXT, RIGHT, START, STOP, TO_LEFT
from weft.learn.trees.kernels.leaf import carry_up, list_depth_first
from weft.learn.workers.group import sum_over_workers

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Grown:
    """Nodes in depth-first order, the root first. Rows of a node are order[start:stop]."""

    nodes: Array  # (nodes, 9), the columns of depth_kernels
    gains: Array
    order: Array
    sides: dict[int, Array]  # of nodes that cut a categorical feature: which codes go left
    bounds: Array | None = None  # (nodes, 2): between which each node's value must be

    @property
    def feature(self) -> Array:
        return self.nodes[:, FEATURE]

    @property
    def left(self) -> Array:
        return self.nodes[:, LEFT]

    @property
    def right(self) -> Array:
        return self.nodes[:, RIGHT]

    @property
    def start(self) -> Array:
        return self.nodes[:, START]

    @property
    def stop(self) -> Array:
        return self.nodes[:, STOP]

    @property
    def leaves(self) -> Array:
        return np.flatnonzero(self.left < 0)

    @property
    def depth(self) -> int:
        return int(self.nodes[:, DEPTH].max())

    @property
    def missing_left(self) -> Array:
        """Missing values go where the fit sent them; where it saw none, with the larger part of the rows."""
        (sizes,) = sum_over_workers([self.stop - self.start])
        inner = self.left >= 0
        larger = np.zeros(len(sizes), bool)
        larger[inner] = sizes[self.left[inner]] > sizes[self.right[inner]]
        return np.where(self.nodes[:, TO_LEFT] == 2, larger, self.nodes[:, TO_LEFT] == 1) & inner

    def thresholds(self, bins: Bins | StoredBins) -> Array:
        values = np.full(len(self.nodes), -2.0)
        inner = self.left >= 0
        some = self.nodes[inner]
        values[inner] = bins.thresholds(some[:, FEATURE], some[:, BIN], some[:, NEXT])
        return values

    def parents_of_sums(self, sums: Array) -> Array:
        """Sums over leaves (nodes, ...), filled in at the leaves, carried up to all nodes."""
        carry_up(np.ascontiguousarray(self.left), np.ascontiguousarray(self.right), sums)
        return sums


def depth_first(nodes: Array) -> Array:
    """The numbers of the nodes in depth-first order, left before right."""
    found = np.empty(len(nodes), np.int64)
    left, right = np.ascontiguousarray(nodes[:, LEFT]), np.ascontiguousarray(nodes[:, RIGHT])
    return found[: list_depth_first(left, right, found)]


def renumbered(
    nodes: Array, gains: Array, sides: dict[int, Array], keep: Array
) -> tuple[Array, Array, dict[int, Array]]:
    """The nodes `keep`, in that order; a node whose children are not kept becomes a leaf."""
    place = np.full(len(nodes) + 1, -1)
    place[keep] = np.arange(len(keep))
    nodes, gains = nodes[keep], gains[keep]
    nodes[:, LEFT], nodes[:, RIGHT] = place[nodes[:, LEFT]], place[nodes[:, RIGHT]]
    nodes[nodes[:, LEFT] < 0, FEATURE] = -1
    return nodes, gains, {int(place[node]): side for node, side in sides.items() if place[node] >= 0}


def best_first(grown: Grown, max_leaves: int) -> Grown:
    """Return the tree that splitting the most useful leaf first would have grown, up to `max_leaves` leaves.

    A node's cut does not depend on when it is made, so a whole tree can be cut back to it.
    """
    left, right = grown.left.tolist(), grown.right.tolist()
    heap = [(-float(grown.gains[0]), 0)] if left[0] >= 0 else []
    keep, leaves = [0], 1
    while heap and leaves < max_leaves:
        _, node = heapq.heappop(heap)
        leaves += 1
        for child in (left[node], right[node]):
            keep.append(child)
            if left[child] >= 0:
                heapq.heappush(heap, (-float(grown.gains[child]), child))
    kept = np.array(sorted(keep))  # still depth first
    return Grown(*_parts(grown, kept), None if grown.bounds is None else grown.bounds[kept])


def _parts(grown: Grown, kept: Array) -> tuple[Array, Array, Array, dict[int, Array]]:
    nodes, gains, sides = renumbered(grown.nodes.copy(), grown.gains, grown.sides, kept)
    return nodes, gains, grown.order, sides
