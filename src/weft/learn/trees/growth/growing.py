"""Grows one tree: in one call where that will do, else by levels, or best leaf first, with threads and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from weft.learn.threads import ThreadTeam
from weft.learn.trees.growth.binning import Codes
from weft.learn.trees.growth.deep import deep, is_deep_worth_it
from weft.learn.trees.growth.growing_stored import StoredGrowth
from weft.learn.trees.growth.grown import Grown, best_first, depth_first, renumbered
from weft.learn.trees.growth.levels import Family, LevelNode, LevelPlan, in_batches, in_parts, plan_level
from weft.learn.trees.growth.limited import Limited
from weft.learn.trees.growth.rules import SplitRules
from weft.learn.trees.growth.space import BUDGET_BYTES, Space
from weft.learn.trees.growth.stored import StoredCodes
from weft.learn.trees.growth.whole import can_grow_whole, grow_whole
from weft.learn.trees.kernels.constrained import search_constrained
from weft.learn.trees.kernels.depth import (
    BIN,
    DEPTH,
    FEATURE,
    LEFT,
    NEXT,
    RIGHT,
    START,
    STOP,
    TO_LEFT,
    drawn_features,
    gather_block,
    places_below,
)
from weft.learn.trees.kernels.level import (
    build_group,
    category_sides,
    pure,
    search_group,
    split_rows,
)

Array = np.ndarray[Any, Any]

NEAR = 2048  # rows whose codes fit the cache: below, a node is finished depth first


def grow(
    codes: Codes | StoredCodes,
    order: Array,
    words: Array,
    rules: SplitRules,
    team: ThreadTeam,
    *,
    seed: int = 0,
    merge: Callable[[Array], None] | None = None,
    space: Space | None = None,
) -> Grown:
    """Grow a tree for the rows `order` (int32, ascending), whose words are words[:, i]; both are permuted.

    `merge` adds up arrays of whole numbers over workers, in place; then every node is grown by level. `space` is kept
    by who grows tree after tree.
    """
    space = space or Space()
    if isinstance(codes, StoredCodes):
        return StoredGrowth(codes, order, words, rules, seed).run()
    if not codes.grouped:
        nodes, gains = deep(codes.values, codes.columns, order, words, 0, np.uint64(seed), rules)
        grown = Grown(nodes, gains, order, {})
        return best_first(grown, rules.max_leaves) if rules.max_leaves else grown
    if merge is None and can_grow_whole(codes, words, rules, team, space):
        whole = grow_whole(codes, order, words, rules, seed, space)
        if whole is not None:
            return whole
    return _Growth(codes, order, words, rules, team, seed, merge, space).run()


@dataclass(frozen=True)
class Candidate:
    """The best cut of a node: (bin, next bin, missing go left), which codes go left, and the sums of their rows."""

    node: int
    slot: int  # of the node's histogram; -1 where it is not kept
    feature: int
    cut: Array
    gain: float
    sides: Array
    left: Array


class _Growth:
    """The state of one tree that is grown by level, or best leaf first."""

    def __init__(
        self,
        codes: Codes,
        order: Array,
        words: Array,
        rules: SplitRules,
        team: ThreadTeam,
        seed: int,
        merge: Callable[[Array], None] | None,
        space: Space,
    ):
        self.codes, self.order, self.words, self.rules, self.team = codes, order, words, rules, team
        self.merge, self.space = merge, space
        self.drawn = rules.max_features < codes.columns
        self.places: list[Any] = [
            np.uint64(seed)
        ]  # of each node in the tree: what a node draws, it draws by its place
        self.fields, self.scales, self.limits = rules.packing.table, rules.packing.scales, rules.limits
        self.groups = codes.groups
        self.categorical = codes.bins.categorical if codes.bins.categorical.any() else None
        self.budget = BUDGET_BYTES if codes.window is None or not codes.room else codes.room // 2
        # Cuts of categories, and of workers' rows together, are made by level only.
        self.limited = Limited(rules.constraints, codes.columns)
        by_level = merge or codes.bins.categorical.any() or rules.constraints.any or rules.max_leaves
        self.near = (
            0 if by_level or not is_deep_worth_it(len(self.groups), codes.columns, words, rules) else NEAR
        )
        self.spare, self.spare_words = space.like("order", order), space.like("words", words)
        self.nodes: list[list[int]] = []
        self.gains: list[float] = []
        self.totals: list[Array] = []
        self.sides: dict[int, Array] = {}
        self.finish: list[int] = []
        self.pool = space.pool(1, (len(self.groups), words.shape[0], 2048))

    def run(self) -> Grown:
        total = self.words.sum(axis=1)
        rows = np.array([len(self.order)])
        if self.merge:
            self.merge(total)
            self.merge(rows)
        families = [Family((self._member(0, len(self.order), int(rows[0]), 0, total),))]
        whole = len(self.order) == self.codes.rows  # rows come in order, each once
        if self.rules.max_leaves:
            self._best_first(families[0], whole)
            return self._finished()
        while families := [one for one in families if any(member.open for member in one.members)]:
            most = self.budget // self.pool[:0].itemsize // (len(self.groups) * len(total) * 2048)
            parts = in_parts(families, most)
            families = [child for part in parts for child in self._level(part, whole)]
            if len(parts) > 1:
                families = [Family(family.members) for family in families]
            whole = False
        return self._finished()

    def _member(self, start: int, stop: int, rows: int, depth: int, total: Array) -> LevelNode:
        """Note a node, and whether it is to be split now, later or never."""
        node = len(self.nodes)
        self.nodes.append([-1, 0, 0, 0, -1, -1, start, stop, depth])
        self.gains.append(0.0)
        self.totals.append(total)
        rules = self.rules
        able = (
            rows >= rules.min_split
            and depth < rules.max_depth
            and not (rules.classes and pure(total, self.fields, self.scales, self.limits, rules.asked))
        )
        near = rows <= self.near and depth > 0
        if able and near:
            self.finish.append(node)
        return LevelNode(node, start, stop, rows, able and not near)

    def _level(self, families: list[Family], whole: bool) -> list[Family]:
        """Split the open nodes of these families; returns their children."""
        return self._carried_out(self._candidates(plan_level(families), whole))

    def _best_first(self, family: Family, whole: bool) -> None:
        """Split the node whose cut gains most, again and again, until there are leaves enough."""
        most = max(1, self.budget // self.pool[:0].itemsize // self.pool[0].size)
        waiting: list[tuple[float, int, Candidate]] = []
        kept: set[int] = set()
        for leaves in range(1, self.rules.max_leaves):
            if any(member.open for member in family.members):
                for found in self._candidates(plan_level([family], kept), whole and leaves == 1):
                    one = found if len(kept) < most else replace(found, slot=-1)
                    kept |= {one.slot} - {-1}
                    heappush(waiting, (-one.gain, one.node, one))
            if not waiting:
                return
            chosen = heappop(waiting)[-1]
            kept.discard(chosen.slot)
            (family,) = self._carried_out([chosen])

    def _candidates(self, plan: LevelPlan, whole: bool) -> list[Candidate]:
        """Return the best cuts of the nodes of a plan that are worth it."""
        self.pool = self.space.pool(plan.size, self.pool.shape[1:])
        gains, cuts = self._search(plan, whole)
        features = self._chosen(plan.nodes, gains) if self.drawn else gains.argmax(axis=1)
        best = gains[np.arange(len(features)), features]
        self.limited.note(plan.nodes, features)
        return [
            self._candidate(node, slot, int(feature), cuts[place, feature], float(best[place]))
            for place, (node, slot, feature) in enumerate(zip(plan.nodes, plan.slots, features, strict=True))
            if best[place] > -np.inf and best[place] >= self.rules.min_gain
        ]

    def _search(self, plan: LevelPlan, whole: bool) -> tuple[Array, Array]:
        """Gains (nodes, features) and cuts (nodes, features, 3) of all nodes of the level."""
        columns = self.codes.columns
        builds = np.array(plan.builds, np.int64).reshape(-1, 3)
        subtracts = np.array(plan.subtracts, np.int64).reshape(-1, 2)
        slots = np.array(plan.slots, np.int64)
        totals = np.stack([self.totals[node] for node in plan.nodes])
        wanted = self._wanted(plan.nodes)
        gains, cuts = np.empty((len(slots), columns)), np.empty((len(slots), columns, 3), np.int64)
        values = self.limited.values_of(len(slots))
        bounds = self.limited.bounds_of(plan.nodes)
        kinds = self.rules.kinds

        def build(group: int) -> None:
            build_group(
                self.groups[group],
                self.order,
                self.words,
                builds,
                whole,
                columns - 8 * group,
                self.pool,
                group,
            )
            self.codes.let_go(group)

        def search(group: int) -> None:
            if self.limited.signs is not None:
                search_constrained(
                    self.pool,
                    group,
                    subtracts,
                    slots,
                    totals,
                    wanted,
                    self.codes.bins.categorical,
                    self.limited.signs,
                    bounds,
                    self.fields,
                    self.scales,
                    self.limits,
                    gains,
                    cuts,
                    values,
                )
                return
            search_group(
                self.pool,
                group,
                subtracts,
                slots,
                totals,
                wanted,
                self.categorical,
                self.fields,
                self.scales,
                self.limits,
                *kinds,
                gains,
                cuts,
            )

        def both(group: int) -> None:
            build(group)
            search(group)

        groups = range(len(self.groups))
        if self.merge is None:
            list(self.team.map(both, groups))
        else:
            list(self.team.map(build, groups))
            built = self.pool[builds[:, 2]]
            self.merge(built)
            self.pool[builds[:, 2]] = built
            list(self.team.map(search, groups))
        stuck = np.asarray(np.isneginf(gains).all(axis=1))
        if self.drawn and stuck.any():  # nodes that drew nothing to cut go on to look, as far as they must
            wanted[:], subtracts = stuck[:, None] & self.limited.allowed(plan.nodes), subtracts[:0]
            known, cut = gains.copy(), cuts.copy()
            list(self.team.map(search, groups))
            gains[~stuck], cuts[~stuck] = known[~stuck], cut[~stuck]
        return gains, cuts

    def _order_of(self, node: int) -> Array:
        """All features, in the order in which the node looks at them."""
        names = np.empty(self.codes.columns, np.int64)
        drawn_features(self.places[node], names)
        return names

    def _wanted(self, nodes: tuple[int, ...]) -> Array:
        """The features that each node looks at first: all, or as many as asked for."""
        wanted = np.full((len(nodes), self.codes.columns), not self.drawn)
        if self.drawn:
            for place, node in enumerate(nodes):
                wanted[place, self._order_of(node)[: self.rules.max_features]] = True
        allowed: Array = wanted & self.limited.allowed(nodes)
        return allowed

    def _chosen(self, nodes: tuple[int, ...], gains: Array) -> Array:
        """The best feature of those that each node drew; the first that can be cut where none of them can."""
        chosen = np.empty(len(nodes), np.int64)
        for place, node in enumerate(nodes):
            names = self._order_of(node)
            found = gains[place, names]
            first = found[: self.rules.max_features]
            can = np.isneginf(first).all() and not np.isneginf(found).all()
            chosen[place] = names[np.argmax(found > -np.inf) if can else np.argmax(first)]
        return chosen

    def _candidate(self, node: int, slot: int, feature: int, cut: Array, gain: float) -> Candidate:
        """Return a cut with what its node's histogram tells of it: which codes go left, and their sums."""
        hist, sides = self._histogram(slot, feature), np.zeros(256, bool)
        if self.codes.bins.categorical[feature]:
            category_sides(hist, int(cut[0]), self.fields, self.scales, self.limits, sides)
        else:
            sides[: int(cut[0]) + 1] = True
        sides[255] = cut[2] == 1
        return Candidate(node, slot, feature, cut, gain, sides, hist[:, sides].sum(axis=1))

    def _histogram(self, slot: int, feature: int) -> Array:
        hist: Array = self.pool[slot, feature // 8][:, (feature % 8) * 256 : (feature % 8 + 1) * 256]
        return hist

    def _carried_out(self, cuts: list[Candidate]) -> list[Family]:
        """Write cuts into their nodes, and part their rows; returns the children."""
        for one in cuts:
            record = self.nodes[one.node]
            record[FEATURE], record[BIN], record[NEXT], record[TO_LEFT] = one.feature, *map(int, one.cut)
            self.gains[one.node] = one.gain
            if self.codes.bins.categorical[one.feature]:
                self.sides[one.node] = one.sides
        return self._children(cuts, list(self.team.map(self._split, cuts)))

    def _split(self, one: Candidate) -> int:
        """Move the rows of a node to either side, and return the border between them."""
        record = self.nodes[one.node]
        middle = split_rows(
            self.codes.column(one.feature),
            one.sides.view(np.uint8),
            self.order,
            self.words,
            record[START],
            record[STOP],
            self.spare,
            self.spare_words,
        )
        self.codes.let_go(one.feature // 8)
        return middle

    def _children(self, cuts: list[Candidate], borders: list[int]) -> list[Family]:
        rows = np.array(
            [
                (middle - self.nodes[one.node][START], self.nodes[one.node][STOP] - middle)
                for one, middle in zip(cuts, borders, strict=True)
            ]
        ).reshape(-1, 2)
        if self.merge:
            self.merge(rows)
        families = []
        for one, middle, (few, rest) in zip(cuts, borders, rows.tolist(), strict=True):
            record = self.nodes[one.node]
            depth = record[DEPTH] + 1
            if self.drawn:
                self.places += map(np.uint64, places_below(self.places[one.node]))
            first = self._member(record[START], middle, few, depth, one.left)
            second = self._member(middle, record[STOP], rest, depth, self.totals[one.node] - one.left)
            record[LEFT], record[RIGHT] = first.node, second.node
            self.limited.passed_on(one.node, one.feature)
            families.append(Family((first, second), one.slot))
        return families

    def _finished(self) -> Grown:
        """Finish the small nodes, each on its own, and put all nodes in depth-first order."""
        tables = [np.array(self.nodes, np.int32)]
        gains = [np.array(self.gains)]
        count = len(self.nodes)
        for node, part, part_gains in self._deepened():
            start = self.nodes[node][START]
            part[:, START] += start
            part[:, STOP] += start
            inner = part[:, LEFT] >= 0
            part[inner, LEFT] += count - 1  # the subtree's root is a node that we have
            part[inner, RIGHT] += count - 1
            tables[0][node], gains[0][node] = part[0], part_gains[0]
            tables.append(part[1:])
            gains.append(part_gains[1:])
            count += len(part) - 1
        nodes = np.concatenate(tables)
        places = depth_first(nodes)
        nodes, found, sides = renumbered(nodes, np.concatenate(gains), self.sides, places)
        return Grown(nodes, found, self.order, sides, self.limited.bounds_in(places))

    def _deepened(self) -> Iterator[tuple[int, Array, Array]]:
        """Grow and return the subtrees of the small nodes."""
        if self.codes.window is None:
            yield from (
                (node, *part)
                for node, part in zip(self.finish, self.team.map(self._deepen, self.finish), strict=True)
            )
            return
        # Rows of small nodes are all over the file: those of many nodes are fetched group by group.
        rows = [self.nodes[node][STOP] - self.nodes[node][START] for node in self.finish]
        for some in in_batches(rows, (self.codes.room or 0) // 4 // self.codes.columns):
            nodes = self.finish[some]
            blocks = [np.empty((count, len(self.groups)), np.uint64) for count in rows[some]]
            for group in range(len(self.groups)):
                for node, block in zip(nodes, blocks, strict=True):
                    start, stop = self.nodes[node][START : STOP + 1]
                    part = block[:, group : group + 1]
                    gather_block(self.groups[group : group + 1], self.order, start, stop, part)
                self.codes.let_go(group)
            for node, block in zip(nodes, blocks, strict=True):
                yield node, *self._deepen(node, block)

    def _deepen(self, node: int, block: Array | None = None) -> tuple[Array, Array]:
        """Grow the subtree of a node whose rows fit the cache; its rows are put in the order of its leaves."""
        record = self.nodes[node]
        start, stop = record[START], record[STOP]
        if block is None:
            block = np.empty((stop - start, len(self.groups)), np.uint64)
            gather_block(self.groups, self.order, start, stop, block)
        local = np.arange(stop - start, dtype=np.int32)
        words = np.ascontiguousarray(self.words[:, start:stop])
        near = block.view(np.uint8)
        place = self.places[node if self.drawn else 0]
        part = deep(near, self.codes.columns, local, words, record[DEPTH], place, self.rules)
        self.order[start:stop] = self.order[start:stop][local]
        self.words[:, start:stop] = words
        return part
