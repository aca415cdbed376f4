"""Grows a tree from the stored values of a sparse table, depth first or best leaf first: few histograms are kept."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np

from weft.learn.trees.growth.grown import Grown, depth_first, renumbered
from weft.learn.trees.growth.rules import SplitRules
from weft.learn.trees.growth.stored import StoredCodes
from weft.learn.trees.kernels.depth import drawn_features, places_below
from weft.learn.trees.kernels.stored import add_stored, search_stored, split_marked, split_stored, sum_left

Array = np.ndarray[Any, Any]

KEPT_BYTES = 1 << 24  # of histograms of leaves that wait; others are added up anew
EACH_MARK = 2  # stored values of a column, for each row of a node, up to which they are marked


@dataclass
class StoredNode:
    """A node that waits: its rows, its sums, its histogram if it may be split, and who its parent is."""

    start: int
    stop: int
    depth: int
    total: Array
    place: Any  # what it draws features by
    parent: int = -1
    side: int = 4  # the column of the parent's record that names it
    hist: Array | None = None


@dataclass(frozen=True)
class StoredCut:
    """The best cut of a node that waits: of which column, where, and the sums of the rows that go left."""

    node: StoredNode
    here: int  # the node's number
    column: int
    cut: Array
    gain: float
    places: tuple[int, int, int, int, bool]  # what `_split` takes
    left: Array


class StoredGrowth:
    """The state of one tree."""

    def __init__(self, codes: StoredCodes, order: Array, words: Array, rules: SplitRules, seed: int):
        self.codes, self.order, self.words, self.rules = codes, order, words, rules
        self.fields, self.scales, self.limits = rules.packing.table, rules.packing.scales, rules.limits
        self.spare, self.spare_words = np.empty_like(order), np.empty_like(words)
        self.widest = codes.bins.widest
        self.marks = np.zeros(codes.rows, np.uint8)
        self.free: list[Array] = []
        self.nodes: list[list[int]] = []
        self.gains: list[float] = []
        self.kept_bytes = 0  # of the histograms of nodes that wait
        self.seed = seed

    def run(self) -> Grown:
        total = self.words.sum(axis=1)
        root = StoredNode(0, len(self.order), 0, total, np.uint64(self.seed))
        if self._open(root):
            root.hist = self._built(root)
        # The one that gains most is split first; the deepest, where there may be any number of leaves.
        waiting: list[tuple[float, int, StoredCut]] = []
        limited, leaves = self.rules.max_leaves > 0, 1
        fresh: tuple[StoredNode, ...] = (root,)
        while True:
            for node in fresh:
                cut = self._noted(node)
                if cut is not None:
                    heappush(waiting, (-cut.gain if limited else -node.depth, cut.here, cut))
            if not waiting or (limited and leaves >= self.rules.max_leaves):
                break
            leaves += 1
            fresh = self._children(heappop(waiting)[-1], last=limited and leaves >= self.rules.max_leaves)
        nodes = np.array(self.nodes, np.int32)
        nodes, gains, _ = renumbered(nodes, np.array(self.gains), {}, depth_first(nodes))
        return Grown(nodes, gains, self.order, {})

    def _open(self, node: StoredNode) -> bool:
        return node.stop - node.start >= self.rules.min_split and node.depth < self.rules.max_depth

    def _built(self, node: StoredNode) -> Array:
        shape = (self.words.shape[0], len(self.codes.bins.low))
        hist = self.free.pop() if self.free else np.empty(shape, np.int64)
        add_stored(self.codes.ends, self.codes.codes, self.order, self.words, node.start, node.stop, hist)
        return hist

    def _noted(self, node: StoredNode) -> StoredCut | None:
        """Note a node as a leaf; returns its best cut where it has one that is worth it."""
        here = len(self.nodes)
        self.nodes.append([-1, 0, 0, 0, -1, -1, node.start, node.stop, node.depth])
        self.gains.append(0.0)
        if node.parent >= 0:
            self.nodes[node.parent][node.side] = here
        if node.hist is None:
            return None
        column, cut, gain = self._best(node)
        if column < 0 or gain < self.rules.min_gain:
            self.free.append(node.hist)
            return None
        bins = self.codes.bins
        begin, end = int(bins.first[column]), int(bins.first[column + 1]) - 1
        zero, bound = int(bins.zeros[column]), begin + int(cut[0])
        left = np.empty_like(node.total)
        sum_left(node.hist, node.total, begin, end, zero, bound, cut[2] == 1, left)
        self.kept_bytes += node.hist.nbytes
        found = StoredCut(node, here, column, cut, gain, (begin, end, zero, bound, bool(cut[2] == 1)), left)
        if self.kept_bytes > KEPT_BYTES and self.rules.max_leaves:
            self._let_go(node)
        return found

    def _let_go(self, node: StoredNode) -> None:
        """Give a node's histogram back."""
        assert node.hist is not None, "what waits has one"
        self.kept_bytes -= node.hist.nbytes
        self.free.append(node.hist)
        node.hist = None

    def _children(self, one: StoredCut, *, last: bool) -> tuple[StoredNode, StoredNode]:
        """Split a node; returns its children, the right one first. After the `last` cut none is looked for."""
        node, here = one.node, one.here
        middle = self._split(node, one.column, one.places)
        self.nodes[here][:4] = [one.column, *map(int, one.cut)]
        self.gains[here] = one.gain
        near, far = map(np.uint64, places_below(node.place))
        first = StoredNode(node.start, middle, node.depth + 1, one.left, near, here, 4)
        second = StoredNode(middle, node.stop, node.depth + 1, node.total - one.left, far, here, 5)
        hist = node.hist
        if hist is not None:
            self._let_go(node)
        if hist is not None and not last:
            self._share_histogram(self.free.pop(), first, second)
        elif not last:
            for child in (first, second):
                child.hist = self._built(child) if self._open(child) else None
        return second, first

    def _split(self, node: StoredNode, column: int, cut: tuple[int, int, int, int, bool]) -> int:
        """Move the rows of a node that go left before the others; return the border."""
        codes, begin, rest = self.codes, cut[0], cut[1:]
        held = slice(codes.column_ends[column], codes.column_ends[column + 1])
        rows = (self.order, self.words, node.start, node.stop)
        if held.stop - held.start <= EACH_MARK * (node.stop - node.start):
            return split_marked(
                codes.holders[held],
                codes.column_codes[held],
                *rows,
                *rest,
                self.marks,
                self.spare,
                self.spare_words,
            )
        return split_stored(codes.ends, codes.codes, *rows, begin, *rest, self.spare, self.spare_words)

    def _share_histogram(self, hist: Array, first: StoredNode, second: StoredNode) -> None:
        """Give children that may be split their histograms: the larger one's is the parent's less the other's."""
        small, large = sorted((first, second), key=lambda node: node.stop - node.start)
        if not self._open(large):
            self.free.append(hist)
            return
        other = self._built(small)
        hist -= other
        large.hist = hist
        if self._open(small):
            small.hist = other
        else:
            self.free.append(other)

    def _best(self, node: StoredNode) -> tuple[int, Array, float]:
        """Return the column to cut, -1 for none, how, and what that gains."""
        columns = self.codes.columns
        drawn = self.rules.max_features < columns
        names = np.arange(columns)
        wanted = np.ones(columns, bool)
        if drawn:
            drawn_features(node.place, names)
            wanted[names[self.rules.max_features :]] = False
        gains, cuts = np.empty(columns), np.empty((columns, 3), np.int64)
        self._search(node, wanted, gains, cuts)
        column = int(gains.argmax())
        if gains[column] == -np.inf and drawn:  # go on to look, as far as it must
            self._search(node, np.ones(columns, bool), gains, cuts)
            column = int(names[np.argmax(gains[names] > -np.inf)])
        if gains[column] == -np.inf:
            return -1, cuts[0], 0.0
        return column, cuts[column], float(gains[column])

    def _search(self, node: StoredNode, wanted: Array, gains: Array, cuts: Array) -> None:
        search_stored(
            node.hist,
            self.codes.bins.first,
            self.codes.bins.zeros,
            node.total,
            wanted,
            self.fields,
            self.scales,
            self.limits,
            self.rules.asked,
            self.widest,
            gains,
            cuts,
        )
