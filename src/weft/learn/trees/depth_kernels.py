"""A subtree grown depth first, from codes that fit the cache; whole trees, where nodes look at a few features each."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.compiling import inlined, scalar_kernel
from weft.learn.trees.split_kernels import (
    MIN_GAIN,
    MISSING,
    NONE,
    best_cut,
    best_pair_cut,
    is_pure,
    list_bins,
    node_score,
)

Array = Any  # inside compiled code the types are Numba's

SORTED = 40  # rows below which sorting them is quicker than a histogram
# Columns of `nodes`.
FEATURE, BIN, NEXT, TO_LEFT, LEFT, RIGHT, START, STOP, DEPTH = range(9)


@inlined
def mixed(state: Any) -> Any:
    """A random number from any number (splitmix64): nodes draw by their place in the tree, not by their turn."""
    z = np.uint64(state) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def _sort_rows(
    column: Array, order: Array, words: Array, start: int, stop: int, keys: Array, entries: Array, bins: Array
) -> int:
    """Entries of few rows: their codes sorted by insertion, then the sums of equal ones."""
    for i in range(start, stop):
        key = (np.int64(column[order[i]]) << 32) | i
        j = i - start
        while j > 0 and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key
    count = -1
    many = words.shape[0]
    for k in range(stop - start):
        code, i = keys[k] >> 32, keys[k] & 0xFFFFFFFF
        new = count < 0 or bins[count] != code
        count += new
        bins[count] = code
        for w in range(many):
            entries[w, count] = words[w, i] + (0 if new else entries[w, count])
    return count + 1


@inlined
def _count_rows(
    column: Array, order: Array, words: Array, start: int, stop: int, hist: Array, entries: Array, bins: Array
) -> int:
    """Entries of many rows, by a histogram; what is missing comes last."""
    hist[:] = 0
    for w in range(words.shape[0]):
        sums, value = hist[w], words[w]
        for i in range(start, stop):
            sums[column[order[i]]] += value[i]
    count = list_bins(hist, entries, bins)
    full = False
    for w in range(words.shape[0]):
        entries[w, count] = hist[w, MISSING]
        full = full or hist[w, MISSING] != 0
    bins[count] = MISSING
    return count + full


@inlined
def _divide(
    column: Array,
    order: Array,
    words: Array,
    start: int,
    stop: int,
    cut: int,
    to_left: bool,
    spare: Array,
    spare_words: Array,
) -> int:
    """Rows with codes up to `cut` first, and those without a value where `to_left`; returns the border."""
    middle, others = start, 0
    many = words.shape[0]
    for i in range(start, stop):
        row = order[i]
        code = column[row]
        side = to_left if code == MISSING else code <= cut
        order[middle] = row
        spare[others] = row
        for w in range(many):
            v = words[w, i]
            words[w, middle] = v
            spare_words[w, others] = v
        middle += side
        others += not side
    order[middle:stop] = spare[:others]
    for w in range(many):
        words[w, middle:stop] = spare_words[w, :others]
    return middle


@scalar_kernel
def grow_depth_first(
    block: Array,
    order: Array,
    words: Array,
    depth: int,
    seed: int,
    max_depth: int,
    min_split: int,
    max_features: int,
    fields: Array,
    scales: Array,
    limits: Array,
    criterion: int,
    quick: bool,
    nodes: Array,
    gains: Array,
) -> int:
    """Grow a subtree from codes block[feature, row] for rows order[:], whose words are words[:, :]; both are permuted.

    Fills nodes[node] (see the columns above) and gains[node]; returns how many nodes there are. Nodes are numbered
    depth first, left before right.
    """
    features, many = block.shape[0], words.shape[0]
    entries, bins = np.empty((many, 257), np.int64), np.empty(257, np.int64)
    hist, keys = np.empty((many, 256), np.int64), np.empty(SORTED, np.int64)
    left, right = np.empty(many, np.int64), np.empty(many, np.int64)
    total, missing = np.empty(many, np.int64), np.empty(many, np.int64)
    spare, spare_words = np.empty(len(order), np.int32), np.empty((many, len(order)), np.int64)
    some = max_features < features
    names = np.arange(features)
    # What waits: (start, stop, depth, parent, is left), and the seed of the place.
    waiting = np.empty((64, 5), np.int64)
    places = np.empty(64, np.uint64)
    waiting[0] = (0, len(order), depth, -1, 0)
    places[0] = np.uint64(seed)
    height, count = 1, 0
    while height > 0:
        height -= 1
        start, stop, depth, parent, is_left = waiting[height]
        place = places[height]
        node = count
        count += 1
        if parent >= 0:
            nodes[parent, LEFT if is_left else RIGHT] = node
        nodes[node] = (-1, 0, 0, 0, -1, -1, start, stop, depth)
        gains[node] = 0.0
        rows = stop - start
        if rows < min_split or depth >= max_depth:
            continue
        for w in range(many):
            total[w] = 0
            for i in range(start, stop):
                total[w] += words[w, i]
        if is_pure(total, fields, scales, limits, criterion):
            continue
        best, best_feature, best_bin, best_next, best_side = NONE, -1, 0, 0, 0
        state = place
        visited = 0
        while visited < features and (visited < max_features or best_feature < 0):
            if some:  # a shuffle that goes no further than it is needed
                state = mixed(state)
                other = visited + np.int64(state % np.uint64(features - visited))
                names[visited], names[other] = names[other], names[visited]
            feature = names[visited]
            visited += 1
            column = block[feature]
            if rows <= SORTED:
                filled = _sort_rows(column, order, words, start, stop, keys, entries, bins)
            else:
                filled = _count_rows(column, order, words, start, stop, hist, entries, bins)
            missing[:] = 0
            absent = bins[filled - 1] != MISSING
            if not absent:
                filled -= 1
                for w in range(many):
                    missing[w] = entries[w, filled]
            if quick:
                score, cut, to_left = best_pair_cut(
                    entries, filled, missing[0], total[0], fields, scales, limits
                )
            else:
                score, cut, to_left = best_cut(
                    entries, filled, missing, total, fields, scales, limits, criterion, left, right
                )
            if score > best:
                best, best_feature, best_bin, best_side = (
                    score,
                    feature,
                    bins[cut],
                    2 if absent else int(to_left),
                )
                best_next = bins[cut + 1] if cut + 1 < filled else MISSING
        gain = best - node_score(total, fields, scales, limits, criterion)
        if best_feature < 0 or gain < limits[MIN_GAIN]:
            continue
        middle = _divide(
            block[best_feature], order, words, start, stop, best_bin, best_side == 1, spare, spare_words
        )
        nodes[node, FEATURE] = best_feature
        nodes[node, BIN] = best_bin
        nodes[node, NEXT] = best_next
        nodes[node, TO_LEFT] = best_side
        gains[node] = gain
        if height + 2 > len(places):
            more = np.empty((2 * len(places), 5), np.int64)
            more[:height] = waiting[:height]
            waiting = more
            further = np.empty(2 * len(places), np.uint64)
            further[:height] = places[:height]
            places = further
        waiting[height] = (middle, stop, depth + 1, node, 0)
        places[height] = mixed(place ^ np.uint64(1))
        waiting[height + 1] = (start, middle, depth + 1, node, 1)
        places[height + 1] = mixed(place)
        height += 2
    return count


@scalar_kernel
def gather_block(codes: Array, order: Array, start: int, stop: int, block: Array) -> None:
    """Copy the codes of rows order[start:stop] from groups of eight features to columns: block[feature, row]."""
    features = block.shape[0]
    for group in range(codes.shape[0]):
        first = group * 8
        last = min(first + 8, features)
        column = codes[group]
        for i in range(start, stop):
            c = column[order[i]]
            for feature in range(first, last):
                block[feature, i - start] = c & 255
                c >>= 8
