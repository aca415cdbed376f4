"""Cuts under monotonic constraints: a node's value stays between bounds, and a cut may not turn the wrong way.

A node of sums N (second derivatives) and A (first) has the value v = -A / (N + l2), moved to the nearer bound, and the
score -(2 A v + (N + l2) v²), which is A² / (N + l2) where no bound is in the way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel
from weft.learn.trees.kernels.level import put_by_rate
from weft.learn.trees.kernels.split import L2, MIN_ROWS, MIN_WEIGHT, MISSING, NONE, field, list_bins

Array = Any  # inside compiled code the types are Numba's


@inlined
def _value(n: float, a: float, low: float, high: float, l2: float) -> float:
    return min(max(-a / max(n + l2, 1e-300), low), high)


@inlined
def _score(n: float, a: float, v: float, l2: float) -> float:
    return -(2.0 * a * v + (n + l2) * v * v)


@inlined
def _best(
    entries: Array,
    count: int,
    missing: Array,
    total: Array,
    sign: int,
    low: float,
    high: float,
    fields: Array,
    scales: Array,
    limits: Array,
    left: Array,
    right: Array,
) -> tuple[float, int, bool, float, float]:
    """The best cut, as `best_cut` finds it, of those whose values keep to bounds and sign; and the two values."""
    words, rows, l2 = total.shape[0], fields.shape[0] - 1, limits[L2]
    absent = True
    for w in range(words):
        absent = absent and missing[w] == 0
    best, place, to_left, near_best, far_best = NONE, -1, False, 0.0, 0.0
    for side in range(1 if absent else 2):
        for w in range(words):
            left[w] = missing[w] if side else 0
        for e in range(count if side == 0 and not absent else count - 1):
            for w in range(words):
                left[w] += entries[w, e]
                right[w] = total[w] - left[w]
            n_left, n_right = field(left, 0, fields, scales), field(right, 0, fields, scales)
            fewest = min(field(left, rows, fields, scales), field(right, rows, fields, scales))
            lightest = min(n_left, n_right)
            if fewest < limits[MIN_ROWS] or lightest < limits[MIN_WEIGHT] or lightest <= 0:
                continue
            a_left, a_right = field(left, 1, fields, scales), field(right, 1, fields, scales)
            near, far = _value(n_left, a_left, low, high, l2), _value(n_right, a_right, low, high, l2)
            if sign * (far - near) < 0:
                continue
            score = _score(n_left, a_left, near, l2) + _score(n_right, a_right, far, l2)
            if score > best:
                best, place, to_left, near_best, far_best = score, e, side == 1, near, far
    return best, place, to_left, near_best, far_best


@scalar_kernel
def search_constrained(
    pool: Array,
    group: int,
    subtracts: Array,
    slots: Array,
    totals: Array,
    wanted: Array,
    categorical: Array,
    signs: Array,
    bounds: Array,
    fields: Array,
    scales: Array,
    limits: Array,
    gains: Array,
    cuts: Array,
    values: Array,
) -> None:
    """`search_group` of nodes with bounds[node] = (low, high); values[node, feature] are those of both sides."""
    for s in range(subtracts.shape[0]):
        large, small = pool[subtracts[s, 0], group], pool[subtracts[s, 1], group]
        for w in range(large.shape[0]):
            for b in range(large.shape[1]):
                large[w, b] -= small[w, b]
    count = totals.shape[1]
    entries, bins = np.empty((count, 256), np.int64), np.empty(256, np.int64)
    left, right, missing = np.empty(count, np.int64), np.empty(count, np.int64), np.empty(count, np.int64)
    first, l2 = group * 8, limits[L2]
    for node in range(slots.shape[0]):
        low, high = bounds[node, 0], bounds[node, 1]
        n, a = field(totals[node], 0, fields, scales), field(totals[node], 1, fields, scales)
        own = _score(n, a, _value(n, a, low, high, l2), l2)
        for feature in range(first, min(first + 8, gains.shape[1])):
            gains[node, feature] = NONE
            if not wanted[node, feature]:
                continue
            hist = pool[slots[node], group][:, (feature - first) * 256 : (feature - first + 1) * 256]
            filled = list_bins(hist, entries, bins)
            for w in range(count):
                missing[w] = hist[w, MISSING]
            if categorical[feature]:
                put_by_rate(entries, bins, filled, fields, scales, limits)
            score, place, to_left, near, far = _best(
                entries,
                filled,
                missing,
                totals[node],
                signs[feature],
                low,
                high,
                fields,
                scales,
                limits,
                left,
                right,
            )
            if place >= 0:
                gains[node, feature] = score - own
                cuts[node, feature, 0] = place if categorical[feature] else bins[place]
                cuts[node, feature, 1] = bins[place + 1] if place + 1 < filled else MISSING
                cuts[node, feature, 2] = to_left if missing.any() else 2
                values[node, feature, 0], values[node, feature, 1] = near, far
