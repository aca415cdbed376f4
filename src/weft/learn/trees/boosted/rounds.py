"""Boosting rounds: derivatives, a tree for each output, a step of its leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.learn.threads import ThreadTeam
from weft.learn.trees.boosted.losses import MANY, BoostingLoss
from weft.learn.trees.growth.binning import Codes
from weft.learn.trees.growth.growing import grow
from weft.learn.trees.growth.grown import Grown
from weft.learn.trees.growth.packing import (
    TOGETHER,
    Extent,
    Packing,
    derivative_packing,
    pair_packing,
)
from weft.learn.trees.growth.rules import Constraints, SplitRules
from weft.learn.trees.growth.space import Space, Spaces
from weft.learn.trees.growth.stored import StoredCodes
from weft.learn.trees.kernels.boosting import (
    add_values,
    leaf_derivatives,
    newton_steps,
    pack_derivatives,
    word_steps,
)
from weft.learn.trees.kernels.split import PAIR
from weft.learn.workers.group import current_workers, largest_over_workers, sum_over_workers

Array = np.ndarray[Any, Any]

UNITS = 64  # of a packed derivative, on average in a leaf, that are digits enough


@dataclass(frozen=True)
class RoundSettings:
    """The settings of a round: how each tree is grown, and how far its leaves step."""

    rate: float
    max_depth: int
    min_split: int
    min_rows: int
    min_gain: float
    max_features: int
    max_leaves: int
    l2: float
    constraints: Constraints = field(default_factory=Constraints)


@dataclass(frozen=True)
class Rows:
    """The rows of a fit, and where their raw predictions are."""

    codes: Codes | StoredCodes
    y: Array
    weights: Array
    raw: Array  # (rows, outputs)
    spaces: Spaces = field(default_factory=Spaces)
    even: bool = field(init=False)  # all weights, of all workers, are 1
    heaviest: float = field(init=False)  # the largest weight of all workers

    def __post_init__(self) -> None:
        (others,) = sum_over_workers([float((self.weights != 1).sum())])
        object.__setattr__(self, "even", not others)
        heaviest = largest_over_workers(float(self.weights.max(initial=0.0)))
        object.__setattr__(self, "heaviest", heaviest)


def boosting_round(
    rows: Rows,
    chosen: Array,
    loss: BoostingLoss,
    settings: RoundSettings,
    team: ThreadTeam,
    *,
    seed: int,
) -> tuple[list[tuple[Grown, Array]], float]:
    """One tree for each output, and its values, grown on the rows `chosen`; only their raw predictions move.

    Also returns the mean loss before the round, which the derivatives mostly know.
    """
    first, second, before = loss.derivatives(rows.raw, rows.y, rows.weights)
    if before is None:
        before = loss.value(rows.raw, rows.y, rows.weights)
    others = current_workers()
    merge = None if others is None else others.add
    (many,) = sum_over_workers([len(chosen)])

    def grown_for(output: int, team: ThreadTeam) -> tuple[Grown, Array]:
        g, h = np.ascontiguousarray(first[:, output]), np.ascontiguousarray(second[:, output])
        space = rows.spaces.of_this_thread()
        order = space.like("chosen", chosen)
        order[:] = chosen
        packing, words = _words(rows, g, h, order, int(many), loss, settings, space)
        rules = _rules(packing, settings, space)
        grown = grow(rows.codes, order, words, rules, team, seed=seed + output, merge=merge, space=space)
        return grown, _steps(grown, rows, g, h, words, packing, loss, settings, output)

    if team.size > 1 and loss.outputs > 1 and others is None:  # a thread for each class
        alone = team.alone()
        return list(team.map(lambda output: grown_for(output, alone), range(loss.outputs))), before
    return [grown_for(output, team) for output in range(loss.outputs)], before


def _rules(packing: Packing, settings: RoundSettings, space: Space) -> SplitRules:
    """Return the rules of a tree; those of the tree before it where nothing changed."""
    kept = space.rules
    if kept is None or kept[0] is not packing or kept[1] is not settings:
        made = SplitRules(
            packing,
            PAIR,
            max_depth=settings.max_depth,
            min_split=settings.min_split,
            min_rows=settings.min_rows,
            min_gain=max(settings.min_gain, 1e-12),
            l2=settings.l2,
            max_features=settings.max_features,
            max_leaves=settings.max_leaves,
            constraints=settings.constraints,
        )
        kept = space.rules = packing, settings, made
    rules: SplitRules = kept[2]
    return rules


def _words(
    rows: Rows,
    g: Array,
    h: Array,
    order: Array,
    many: int,
    loss: BoostingLoss,
    settings: RoundSettings,
    space: Space,
) -> tuple[Packing, Array]:
    """Derivatives of the chosen rows as words; second ones that only count rows leave more room to the first."""
    count = settings.min_rows > 1
    if loss.curved == 1.0 and rows.even:
        largest = loss.steep or largest_over_workers(_steepest(g)) or 1.0
        # More than half the digits may round.
        extent = Extent(many, float(many), 1.0, True, largest * (1 + 1e-6))
        packing = pair_packing(extent, count_rows=count, ones=True)
        n, a, _ = packing.fields
        words = space.exactly("packed", 1, len(order))
        pack_derivatives(order, g, h, 1 / a.scale, 1 / n.scale, a.shift, words[0])
        return packing, words
    heaviest = rows.heaviest
    steep = loss.steep * heaviest if loss.steep else largest_over_workers(_steepest(g))
    curved = loss.curved * heaviest if loss.curved else largest_over_workers(float(h.max(initial=0.0)))
    extent = Extent(many, 0.0, max(curved, 1e-300), False, max(steep, 1e-300))
    packing = derivative_packing(extent, count_rows=count)
    n, a, _ = packing.fields
    words = space.exactly("packed", packing.words, len(order))
    if packing.words > 1:
        words[-1] = 1
    if n.word == a.word:
        pack_derivatives(order, g, h, 1 / a.scale, 1 / n.scale, a.shift, words[0])
    else:
        words[n.word] = np.maximum(np.rint(h[order] / n.scale), 1)
        words[a.word] = np.rint(g[order] / a.scale)
    return packing, words


def _steepest(g: Array) -> float:
    """Return the largest |first derivative|."""
    return max(float(g.max(initial=0.0)), -float(g.min(initial=0.0)))


def _steps(
    grown: Grown,
    rows: Rows,
    g: Array,
    h: Array,
    words: Array,
    packing: Packing,
    loss: BoostingLoss,
    settings: RoundSettings,
    output: int,
) -> Array:
    """The value of each leaf, which its rows have been given."""
    values = np.zeros(len(grown.nodes))
    leaf = getattr(loss, "leaf", None)
    raw = rows.raw[:, output]
    if current_workers() is not None or (grown.bounds is not None and leaf is None):
        sums = np.zeros((len(values), 2))
        leaf_derivatives(grown.leaves, grown.start, grown.stop, grown.order, g, h, sums)
        (sums,) = sum_over_workers([sums])
        steps = -sums[grown.leaves, 0] / np.maximum(sums[grown.leaves, 1] + settings.l2, 1e-12)
        if grown.bounds is not None:
            steps = np.clip(steps, *grown.bounds[grown.leaves].T)
        values[grown.leaves] = settings.rate * steps
        add_values(grown.leaves, grown.start, grown.stop, grown.order, values, raw)
        return values
    n, a, _ = packing.fields
    if leaf is None and n.word == a.word and MANY < len(grown.order) <= TOGETHER:
        # Of many rows what rounding took away is nothing, unless it took most of each.
        word_steps(
            grown.leaves,
            grown.start,
            grown.stop,
            grown.order,
            words[0],
            a.shift,
            a.scale,
            n.scale,
            g,
            h,
            0 if n.scale == 1.0 else UNITS,  # those that count rows leave the others all digits
            settings.l2,
            settings.rate,
            values,
            raw,
        )
        return values
    if leaf is None:
        newton_steps(
            grown.leaves,
            grown.start,
            grown.stop,
            grown.order,
            g,
            h,
            settings.l2,
            settings.rate,
            values,
            raw,
        )
        return values
    for node in grown.leaves:
        inside = grown.order[grown.start[node] : grown.stop[node]]
        step = leaf(rows.y[inside] - raw[inside], rows.weights[inside])
        if grown.bounds is not None:
            step = float(np.clip(step, *grown.bounds[node]))
        values[node] = settings.rate * step
        raw[inside] += values[node]
    return values
