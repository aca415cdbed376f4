"""The best cut of one feature in one node, from the sums of its bins.

Bins that hold no row of the node are left out first: a cut lies between two neighbours of what remains. Sums are words
of packed whole numbers (see packing.py), so they are exact, whoever adds them up and in which order.

Where N and A share the only word there is no criterion, but None: Numba compiles nothing then but what that case needs.
Scores are what the children would have together; larger is better, and the node's own score is subtracted at the end:

    PAIR      A² / (N + l2)        N: weight (or second derivative), A: sum of the target (or first derivative)
    GINI      sum_k c_k² / N       c_k: weight of class k
    ENTROPY   sum_k c_k log c_k - N log N
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined

Array = Any  # inside compiled code the types are Numba's

PAIR, GINI, ENTROPY = 0, 1, 2
MISSING = 255
NONE = -np.inf

# Places in `limits`.
MIN_ROWS, MIN_WEIGHT, L2, MIN_GAIN, IS_CLASSES, LEAST = 0, 1, 2, 3, 4, 5


@inlined
def field(words: Array, which: int, fields: Array, scales: Array) -> float:
    """One packed number of a vector of words."""
    value: float = (words[fields[which, 0]] >> fields[which, 1]) & fields[which, 2]
    return value * scales[which]  # type: ignore[no-any-return]


@inlined
def _pair_score(words: Array, fields: Array, scales: Array, limits: Array) -> float:
    # Not by `field`: what is called here is compiled on its own, before the first fit of all.
    n = ((words[fields[0, 0]] >> fields[0, 1]) & fields[0, 2]) * scales[0]
    a = ((words[fields[1, 0]] >> fields[1, 1]) & fields[1, 2]) * scales[1]
    return a * a / (n + limits[L2]) if n > 0 else 0.0


@inlined
def node_score(words: Array, fields: Array, scales: Array, limits: Array, criterion: int | None) -> float:
    if criterion is None:
        score: float = _pair_score(words, fields, scales, limits)
    else:
        score = _score_by(words, fields, scales, limits, criterion)
    return score


@inlined
def _score_by(words: Array, fields: Array, scales: Array, limits: Array, criterion: int) -> float:
    if criterion == PAIR:
        return _pair_score(words, fields, scales, limits)
    n, score = 0.0, 0.0
    for k in range(fields.shape[0] - 1):  # the last field counts rows
        c = field(words, k, fields, scales)
        n += c
        if criterion == GINI:
            score += c * c
        elif c > 0:
            score += c * math.log(c)
    if n <= 0:
        return 0.0
    return score / n if criterion == GINI else score - n * math.log(n)


@inlined
def node_weight(words: Array, fields: Array, scales: Array, criterion: int) -> float:
    if criterion == PAIR:
        return field(words, 0, fields, scales)
    n = 0.0
    for k in range(fields.shape[0] - 1):
        n += field(words, k, fields, scales)
    return n


@inlined
def is_pure(words: Array, fields: Array, scales: Array, limits: Array, criterion: int | None) -> bool:
    """Whether all rows are of one class; of numbers it is the gain that tells."""
    if limits[IS_CLASSES] == 0:
        return False
    if criterion is None:
        pure: bool = _is_pure_pair(words, fields, scales)
    else:
        pure = _is_pure_by(words, fields, scales, criterion)
    return pure


@inlined
def _is_pure_pair(words: Array, fields: Array, scales: Array) -> bool:
    n, a = field(words, 0, fields, scales), field(words, 1, fields, scales)
    return a <= 0.0 or a >= n


@inlined
def _is_pure_by(words: Array, fields: Array, scales: Array, criterion: int) -> bool:
    if criterion == PAIR:
        return _is_pure_pair(words, fields, scales)
    seen = 0
    for k in range(fields.shape[0] - 1):
        seen += field(words, k, fields, scales) > 0
    return seen < 2


@inlined
def _cut_score(
    left: Array, right: Array, fields: Array, scales: Array, limits: Array, criterion: int
) -> float:
    """The score of a cut, or NONE where a side has too few rows or too little weight."""
    rows = fields.shape[0] - 1
    low = min(field(left, rows, fields, scales), field(right, rows, fields, scales))
    if low < limits[MIN_ROWS]:
        return NONE
    light = min(node_weight(left, fields, scales, criterion), node_weight(right, fields, scales, criterion))
    if light < limits[MIN_WEIGHT] or light <= 0:
        return NONE
    return _score_by(left, fields, scales, limits, criterion) + _score_by(
        right, fields, scales, limits, criterion
    )


@inlined
def best_counted_cut(
    entries: Array, count: int, missing: Array, total: Array, fields: Array, scales: Array, limits: Array
) -> tuple[float, int, bool]:
    """`best_cut` where N and A share the first word and the second counts rows, by products as in `best_pair_cut`."""
    shift, mask = fields[1, 1], fields[0, 2]
    n_scale, a_scale, l2 = scales[0], scales[1], limits[L2]
    n, a, fewest, lightest = total[0] & mask, total[0] >> shift, limits[MIN_ROWS], limits[MIN_WEIGHT]
    n_all, a_all, damp = float(n), float(a), l2 / n_scale
    unit = n_scale / (a_scale * a_scale) * (1 - 1e-12)  # what may differ by rounding is looked at
    absent = missing[0] == 0 and missing[1] == 0
    best, bar, place, to_left = NONE, -1.0, -1, False
    for side in range(1 if absent else 2):
        sums, rows = (missing[0], missing[1]) if side else (np.int64(0), np.int64(0))
        for e in range(count if side == 0 and not absent else count - 1):
            sums += entries[0, e]
            rows += entries[1, e]
            if rows < fewest:
                continue
            if total[1] - rows < fewest:
                break
            near, some = float(sums & mask), float(sums >> shift)
            far, rest = n_all - near + damp, a_all - some
            near += damp
            if some * some * far + rest * rest * near <= bar * (near * far):
                continue
            n_left, n_right = (sums & mask) * n_scale, (n - (sums & mask)) * n_scale
            light = n_left if n_left < n_right else n_right
            if light < lightest or light <= 0.0:
                continue
            a_left, a_right = (sums >> shift) * a_scale, (a - (sums >> shift)) * a_scale
            score = a_left * a_left / (n_left + l2) + a_right * a_right / (n_right + l2)
            if score > best:
                best, place, to_left = score, e, side == 1
                bar = score * unit
    return best, place, to_left


@inlined
def best_cut(
    entries: Array,
    count: int,
    missing: Array,
    total: Array,
    fields: Array,
    scales: Array,
    limits: Array,
    criterion: int,
    left: Array,
    right: Array,
) -> tuple[float, int, bool]:
    """(score, place, missing go left) of the best cut after entries[:, place]; `left` and `right` are scratch.

    `entries` is (words, bins that hold rows). The place count - 1 parts what is missing from all else.
    """
    words = total.shape[0]
    if words == 2 and criterion == PAIR and fields[1, 0] == 0 and fields[2, 0] == 1 and fields[2, 1] == 0:
        return best_counted_cut(entries, count, missing, total, fields, scales, limits)
    absent = True
    for w in range(words):
        absent = absent and missing[w] == 0
    best, place, to_left = NONE, -1, False
    for side in range(1 if absent else 2):
        for w in range(words):
            left[w] = missing[w] if side else 0
        for e in range(count if side == 0 and not absent else count - 1):
            for w in range(words):
                left[w] += entries[w, e]
                right[w] = total[w] - left[w]
            score = _cut_score(left, right, fields, scales, limits, criterion)
            if score > best:
                best, place, to_left = score, e, side == 1
    return best, place, to_left


@inlined
def best_pair_cut(
    entries: Array,
    count: int,
    missing: int,
    total: int,
    fields: Array,
    scales: Array,
    limits: Array,
    known: float,
) -> tuple[float, int, bool]:
    """`best_cut` where N and A share one word and N tells that a side has rows: the case that speed depends on.

    A cut is first held against the best so far by products, in units of the word, and only what may win is divided.
    Only a score above `known`, that of another feature or NONE, is of interest; the place is -1 where there is none.
    """
    shift, mask = fields[1, 1], fields[0, 2]
    n_scale, a_scale, l2, n_least = scales[0], scales[1], limits[L2], limits[LEAST]
    n, a = total & mask, total >> shift
    n_all, a_all, damp = float(n), float(a), l2 / n_scale
    unit = n_scale / (a_scale * a_scale) * (1 - 1e-12)  # what may differ by rounding is looked at
    best, bar, place, to_left = known, -1.0 if known == NONE else known * unit, -1, False
    for side in range(1 if missing == 0 else 2):
        sums = missing if side else 0
        for e in range(count if side == 0 and missing != 0 else count - 1):
            sums += entries[0, e]
            near, some = float(sums & mask), float(sums >> shift)
            far, rest = n_all - near + damp, a_all - some
            near += damp
            if some * some * far + rest * rest * near <= bar * (near * far):
                continue
            # Whole numbers are subtracted: cuts whose two sides are each other's mirror score exactly alike.
            n_left, n_right = (sums & mask) * n_scale, (n - (sums & mask)) * n_scale
            a_left, a_right = (sums >> shift) * a_scale, (a - (sums >> shift)) * a_scale
            score = a_left * a_left / (n_left + l2) + a_right * a_right / (n_right + l2)
            if score > best and n_left >= n_least and n_right >= n_least:
                best, place, to_left = score, e, side == 1
                bar = score * unit
    return best, place, to_left


@inlined
def list_bins(hist: Array, entries: Array, bins: Array) -> int:
    """Copy the sums of bins that hold rows, and which they are; returns how many."""
    count = 0
    words = hist.shape[0]
    if words == 1:
        for b in range(MISSING):
            value = hist[0, b]
            entries[0, count] = value
            bins[count] = b
            count += value != 0
        return count
    for b in range(MISSING):
        full = False
        for w in range(words):
            entries[w, count] = hist[w, b]
            full = full or hist[w, b] != 0
        bins[count] = b
        count += full
    return count
