"""One level of a tree: histograms of its nodes, eight features at a time, their best cuts, and rows to either side."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel
from weft.learn.trees.kernels.histogram import add_group
from weft.learn.trees.kernels.split import (
    L2,
    MISSING,
    NONE,
    best_counted_cut,
    best_cut,
    best_pair_cut,
    field,
    is_pure,
    list_bins,
    node_score,
)

Array = Any  # inside compiled code the types are Numba's


@scalar_kernel
def build_group(
    codes: Array, order: Array, words: Array, builds: Array, whole: bool, wide: int, pool: Array, group: int
) -> None:
    """Fill the histograms pool[slot, group] of the nodes (start, stop, slot) in `builds`."""
    for b in range(builds.shape[0]):
        out = pool[builds[b, 2], group]
        out[:] = 0
        add_group(codes, order, words, builds[b, 0], builds[b, 1], whole, wide, out)


@inlined
def put_by_rate(entries: Array, bins: Array, count: int, fields: Array, scales: Array, limits: Array) -> None:
    """Put categories in the order of A / N: the best two sides are then next to each other."""
    many = entries.shape[0]
    rates, copy = np.empty(count, np.float64), np.empty((many + 1, count), np.int64)
    # By insertion: a sort of NumPy's, and slices, would take four seconds to compile.
    for e in range(count):
        n, a = field(entries[:, e], 0, fields, scales), field(entries[:, e], 1, fields, scales)
        rate, place = a / (n + limits[L2] + 1e-3), e
        while place > 0 and rates[place - 1] > rate:
            rates[place] = rates[place - 1]
            for w in range(many + 1):
                copy[w, place] = copy[w, place - 1]
            place -= 1
        rates[place] = rate
        for w in range(many):
            copy[w, place] = entries[w, e]
        copy[many, place] = bins[e]
    for e in range(count):
        for w in range(many):
            entries[w, e] = copy[w, e]
        bins[e] = copy[many, e]


@scalar_kernel
def search_group(
    pool: Array,
    group: int,
    subtracts: Array,
    slots: Array,
    totals: Array,
    wanted: Array,
    categorical: Array | None,
    fields: Array,
    scales: Array,
    limits: Array,
    paired: int | None,
    counted: int | None,
    criterion: int | None,
    gains: Array,
    cuts: Array,
) -> None:
    """Take siblings' histograms from their parents', then find the best cut of each feature of the group in each node.

    What is None is left out by Numba, and not compiled: `categorical` where no feature is, and all but one of `paired`
    (N and A share the only word), `counted` (a second word counts rows) and `criterion` (any other packing).

    Writes gains[node, feature] and cuts[node, feature] = (bin, next bin, missing go left). The bins that go left where
    a categorical feature is cut are found again, by `category_sides`, for the one that wins.
    """
    for s in range(subtracts.shape[0]):
        large, small = pool[subtracts[s, 0], group], pool[subtracts[s, 1], group]
        for w in range(large.shape[0]):
            for b in range(large.shape[1]):
                large[w, b] -= small[w, b]
    count = totals.shape[1]
    entries = np.empty((count, 256), np.int64)
    bins = np.empty(256, np.int64)
    left, right, missing = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    first = group * 8
    for node in range(slots.shape[0]):
        own = node_score(totals[node], fields, scales, limits, criterion)
        for feature in range(first, first + 8 if first + 8 < gains.shape[1] else gains.shape[1]):
            gains[node, feature] = NONE
            if not wanted[node, feature]:
                continue
            hist = pool[slots[node], group][:, (feature - first) * 256 : (feature - first + 1) * 256]
            filled = list_bins(hist, entries, bins)
            for w in range(count):
                missing[w] = hist[w, MISSING]
            if categorical is not None:  # noqa: SIM102  left out by Numba as a whole
                if categorical[feature]:
                    put_by_rate(entries, bins, filled, fields, scales, limits)
            score, place, to_left = NONE, -1, False
            if paired is not None:
                score, place, to_left = best_pair_cut(
                    entries, filled, missing[0], totals[node, 0], fields, scales, limits, NONE
                )
            if counted is not None:
                score, place, to_left = best_counted_cut(
                    entries, filled, missing, totals[node], fields, scales, limits
                )
            if criterion is not None:
                score, place, to_left = best_cut(
                    entries, filled, missing, totals[node], fields, scales, limits, criterion, left, right
                )
            if place >= 0:
                gains[node, feature] = score - own
                cuts[node, feature, 0] = bins[place]
                cuts[node, feature, 1] = bins[place + 1] if place + 1 < filled else MISSING
                cuts[node, feature, 2] = to_left
                absent = True
                for w in range(count):
                    absent = absent and missing[w] == 0
                if absent:
                    cuts[node, feature, 2] = 2
                if categorical is not None:  # noqa: SIM102
                    if categorical[feature]:
                        cuts[node, feature, 0] = place


@scalar_kernel
def category_sides(
    hist: Array, place: int, fields: Array, scales: Array, limits: Array, sides: Array
) -> None:
    """Mark in sides[256] the categories that go left where the cut is after `place`, in the order of their rates."""
    entries = np.empty((hist.shape[0], 256), np.int64)
    bins = np.empty(256, np.int64)
    filled = list_bins(hist, entries, bins)
    put_by_rate(entries, bins, filled, fields, scales, limits)
    for e in range(place + 1):
        sides[bins[e]] = True


@scalar_kernel
def split_rows(
    column: Array,
    sides: Array,
    order: Array,
    words: Array,
    start: int,
    stop: int,
    spare: Array,
    spare_words: Array,
) -> int:
    """Move rows of order[start:stop] that go left before the others, their words with them; returns the border.

    Every row is written to both sides, and the side that it does not belong to is written over by the next. Those of
    the right are kept apart and copied back.
    """
    rows, others = order[start:stop], spare[start:stop]
    near, far = np.uint64(0), np.uint64(0)
    if words.shape[0] == 1:
        value, extra = words[0, start:stop], spare_words[0, start:stop]
        for i in range(len(rows)):
            row, word = rows[i], value[i]
            side = sides[column[np.uint32(row)]]
            rows[near], value[near] = row, word
            others[far], extra[far] = row, word
            near += np.uint64(side)
            far += np.uint64(1 - side)
        for i in range(len(rows) - np.int64(near)):
            value[near + np.uint64(i)] = extra[i]
    else:
        many = words.shape[0]
        for i in range(len(rows)):
            row = rows[i]
            side = sides[column[np.uint32(row)]]
            rows[near], others[far] = row, row
            for w in range(many):
                word = words[w, start + i]
                words[w, start + np.int64(near)] = word
                spare_words[w, start + np.int64(far)] = word
            near += np.uint64(side)
            far += np.uint64(1 - side)
        for w in range(many):
            for i in range(start, start + np.int64(far)):
                words[w, i + np.int64(near)] = spare_words[w, i]
    for i in range(len(rows) - np.int64(near)):
        rows[near + np.uint64(i)] = others[i]
    return start + np.int64(near)  # type: ignore[return-value]  # Numba's int64


@scalar_kernel
def pure(total: Array, fields: Array, scales: Array, limits: Array, criterion: int | None) -> bool:
    """`is_pure`, for callers that are not compiled."""
    return is_pure(total, fields, scales, limits, criterion)
