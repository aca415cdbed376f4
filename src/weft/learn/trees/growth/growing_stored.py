"""Grows a tree from the stored values of a sparse table, depth first: few histograms are kept at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.learn.trees.growth.grown import Grown
from weft.learn.trees.growth.rules import SplitRules
from weft.learn.trees.growth.stored import StoredCodes
from weft.learn.trees.kernels.depth import drawn_features, places_below
from weft.learn.trees.kernels.level import add_words
from weft.learn.trees.kernels.stored import add_stored, search_stored, split_marked, split_stored, sum_left

Array = np.ndarray[Any, Any]

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
        self.seed = seed

    def run(self) -> Grown:
        total = np.empty(self.words.shape[0], np.int64)
        add_words(self.words, 0, len(self.order), total)
        root = StoredNode(0, len(self.order), 0, total, np.uint64(self.seed))
        if self._open(root):
            root.hist = self._built(root)
        waiting = [root]
        while waiting:
            waiting += self._grown(waiting.pop())
        return Grown(np.array(self.nodes, np.int32), np.array(self.gains), self.order, {})

    def _open(self, node: StoredNode) -> bool:
        return node.stop - node.start >= self.rules.min_split and node.depth < self.rules.max_depth

    def _built(self, node: StoredNode) -> Array:
        shape = (self.words.shape[0], len(self.codes.bins.low))
        hist = self.free.pop() if self.free else np.empty(shape, np.int64)
        add_stored(self.codes.ends, self.codes.codes, self.order, self.words, node.start, node.stop, hist)
        return hist

    def _grown(self, node: StoredNode) -> list[StoredNode]:
        """Note a node, split it if that is worth it, and return its children, the left one last."""
        here = len(self.nodes)
        self.nodes.append([-1, 0, 0, 0, -1, -1, node.start, node.stop, node.depth])
        self.gains.append(0.0)
        if node.parent >= 0:
            self.nodes[node.parent][node.side] = here
        if node.hist is None:
            return []
        column, cut, gain = self._best(node)
        if column < 0 or gain < self.rules.min_gain:
            self.free.append(node.hist)
            return []
        bins = self.codes.bins
        begin, end = int(bins.first[column]), int(bins.first[column + 1]) - 1
        zero, bound = int(bins.zeros[column]), begin + int(cut[0])
        left = np.empty_like(node.total)
        sum_left(node.hist, node.total, begin, end, zero, bound, cut[2] == 1, left)
        middle = self._split(node, column, (begin, end, zero, bound, cut[2] == 1))
        self.nodes[here][:4] = [column, *map(int, cut)]
        self.gains[here] = gain
        near, far = map(np.uint64, places_below(node.place))
        first = StoredNode(node.start, middle, node.depth + 1, left, near, here, 4)
        second = StoredNode(middle, node.stop, node.depth + 1, node.total - left, far, here, 5)
        self._share_histogram(node.hist, first, second)
        return [second, first]

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
