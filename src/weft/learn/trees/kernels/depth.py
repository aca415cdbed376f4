"""A subtree grown depth first, from codes that fit the cache; whole trees, where nodes look at a few features each."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel
from weft.learn.trees.kernels.bits import lowest_bit
from weft.learn.trees.kernels.split import (
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

FEW = 96  # rows below which listing their codes is quicker than reading all bins
ATONCE = 8  # features whose histograms are added up together: they fit the nearest cache
STRETCH = 256  # rows whose codes do
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
def draw(names: Array, picks: Array, begin: int, end: int, state: Any) -> Any:
    """Go on with a shuffle of `names` from place `begin` up to `end`; returns the state to go on from."""
    for k in range(begin, end):
        state = mixed(state)
        other = k + np.int64(state % np.uint64(len(names) - k))
        picks[k] = other
        names[k], names[other] = names[other], names[k]
    return state


@inlined
def undraw(names: Array, picks: Array, end: int) -> None:
    """Put `names` back in order: what a node draws must not depend on who drew before."""
    for k in range(end - 1, -1, -1):
        other = picks[k]
        names[k], names[other] = names[other], names[k]


@scalar_kernel
def drawn_features(place: int, names: Array) -> None:
    """Fill `names` with all features in the order in which a node of this place looks at them."""
    picks = np.empty(len(names), np.int64)
    for k in range(len(names)):
        names[k] = k
    draw(names, picks, 0, len(names), np.uint64(place))


@scalar_kernel
def places_below(place: int) -> tuple[int, int]:
    """The places of the left and the right child."""
    here = np.uint64(place)
    return mixed(here), mixed(here ^ np.uint64(1))


@inlined
def _add_rows(
    codes: Array, order: Array, words: Array, names: Array, few: bool, hists: Array, seen: Array
) -> None:
    """Add the words of rows `order` to hists[k * words + word, code] of features names[k]; their codes are near.

    Of few rows, the codes that occur are marked as bits of seen[k, 4].
    """
    for start in range(0, len(order), STRETCH):
        stop = start + STRETCH if start + STRETCH < len(order) else len(order)
        some = order[start:stop]
        for k in range(len(names)):
            column, bits = codes[:, names[k]], seen[k]
            for w in range(words.shape[0]):
                value, sums = words[w, start:stop], hists[k * words.shape[0] + w]
                if few and w == 0:
                    for i in range(len(some)):
                        code = column[np.uint32(some[i])]
                        bits[code >> 6] |= np.int64(1) << np.int64(code & 63)
                        sums[code] += value[i]
                else:
                    for i in range(len(some)):
                        sums[column[np.uint32(some[i])]] += value[i]


@inlined
def _list_few(hist: Array, seen: Array, entries: Array, bins: Array) -> int:
    """Entries of the codes that were marked; only their bins are read, and cleared."""
    many, count = hist.shape[0], 0
    for part in range(4):
        bits = np.uint64(seen[part])
        seen[part] = 0
        while bits:
            code = 64 * part + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            bins[count] = code
            for w in range(many):
                entries[w, count] = hist[w, code]
                hist[w, code] = 0
            count += 1
    return count


@inlined
def _list_all(hist: Array, entries: Array, bins: Array) -> int:
    """Entries of many rows; what is missing comes last. The bins are cleared."""
    count = list_bins(hist, entries, bins)
    full = False
    for w in range(hist.shape[0]):
        entries[w, count] = hist[w, MISSING]
        full = full or hist[w, MISSING] != 0
    bins[count] = MISSING
    hist[:] = 0
    return count + full


@inlined
def _divide(
    column: Array, order: Array, words: Array, cut: int, to_left: bool, spare: Array, spare_words: Array
) -> int:
    """Rows with codes up to `cut` first, and those without a value where `to_left`; returns how many these are."""
    near, far = 0, 0
    many = words.shape[0]
    for i in range(len(order)):
        row = order[i]
        code = column[np.uint32(row)]
        side = to_left if code == MISSING else code <= cut
        order[near] = row
        spare[far] = row
        for w in range(many):
            v = words[w, i]
            words[w, near] = v
            spare_words[w, far] = v
        near += side
        far += not side
    for i in range(far):
        order[near + i] = spare[i]
    for w in range(many):
        for i in range(far):
            words[w, near + i] = spare_words[w, i]
    return near


@inlined
def _put(entry: Array, start: int, stop: int, depth: int, parent: int, is_left: int, place: Any) -> None:
    """Note a node that waits: one number after the other, as Numba takes a second for a tuple."""
    entry[0], entry[1], entry[2] = start, stop, depth
    entry[3], entry[4], entry[5] = parent, is_left, place


@scalar_kernel
def grow_depth_first(
    codes: Array,
    features: int,
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
    criterion: int | None,
    nodes: Array,
    gains: Array,
) -> int:
    """Grow a subtree from codes[row, feature] for rows order[:], whose words are words[:, :]; both are permuted.

    Fills nodes[node] (see the columns above) and gains[node]; returns how many nodes there are. Nodes are numbered
    depth first, left before right.
    """
    many = words.shape[0]
    entries, bins = np.empty((many, 257), np.int64), np.empty(257, np.int64)
    hists, seen = np.empty((ATONCE * many, 256), np.int64), np.empty((ATONCE, 4), np.int64)
    hists[:], seen[:] = 0, 0
    left, right = np.empty(many, np.int64), np.empty(many, np.int64)
    total, missing = np.empty(many, np.int64), np.empty(many, np.int64)
    spare, spare_words = np.empty(len(order), np.int32), np.empty((many, len(order)), np.int64)
    some = max_features < features
    names, picks = np.empty(features, np.int64), np.empty(features, np.int64)
    for k in range(features):
        names[k] = k
    # What waits: (start, stop, depth, parent, is left, the seed of the place).
    waiting = np.empty((64, 6), np.int64)
    _put(waiting[0], 0, len(order), depth, -1, 0, np.int64(seed))
    height, count = 1, 0
    while height > 0:
        height -= 1
        last = waiting[height]
        start, stop, depth, parent, is_left, place = (
            last[0],
            last[1],
            last[2],
            last[3],
            last[4],
            np.uint64(last[5]),
        )
        node = count
        count += 1
        if parent >= 0:
            nodes[parent, LEFT if is_left else RIGHT] = node
        for part in range(START):
            nodes[node, part] = 0
        nodes[node, FEATURE], nodes[node, LEFT], nodes[node, RIGHT] = -1, -1, -1
        nodes[node, START], nodes[node, STOP], nodes[node, DEPTH] = start, stop, depth
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
        inside, own = order[start:stop], words[:, start:stop]
        few = rows <= FEW
        while visited < features and (visited < max_features or best_feature < 0):
            end = visited + (ATONCE if visited < max_features else 1)
            if visited < max_features and end > max_features:
                end = max_features
            if some:  # a shuffle that goes no further than it is needed
                state = draw(names, picks, visited, end, state)
            _add_rows(codes, inside, own, names[visited:end], few, hists, seen)
            for k in range(end - visited):
                sums = hists[k * many : (k + 1) * many]
                filled = _list_few(sums, seen[k], entries, bins) if few else _list_all(sums, entries, bins)
                missing[:] = 0
                absent = bins[filled - 1] != MISSING
                if not absent:
                    filled -= 1
                    for w in range(many):
                        missing[w] = entries[w, filled]
                if criterion is None:
                    score, cut, to_left = best_pair_cut(
                        entries, filled, missing[0], total[0], fields, scales, limits, best
                    )
                else:
                    score, cut, to_left = best_cut(
                        entries, filled, missing, total, fields, scales, limits, criterion, left, right
                    )
                if score > best:
                    best, best_feature, best_bin, best_side = (
                        score,
                        names[visited + k],
                        bins[cut],
                        2 if absent else 1 if to_left else 0,
                    )
                    best_next = bins[cut + 1] if cut + 1 < filled else MISSING
            visited = end
        if some:
            undraw(names, picks, visited)
        gain = best - node_score(total, fields, scales, limits, criterion)
        if best_feature < 0 or gain < limits[MIN_GAIN]:
            continue
        middle = start + _divide(
            codes[:, best_feature], inside, own, best_bin, best_side == 1, spare, spare_words
        )
        nodes[node, FEATURE] = best_feature
        nodes[node, BIN] = best_bin
        nodes[node, NEXT] = best_next
        nodes[node, TO_LEFT] = best_side
        gains[node] = gain
        if height + 2 > len(waiting):
            more = np.empty((2 * len(waiting), 6), np.int64)
            for k in range(height):
                for part in range(6):
                    more[k, part] = waiting[k, part]
            waiting = more
        _put(waiting[height], middle, stop, depth + 1, node, 0, np.int64(mixed(place ^ np.uint64(1))))
        _put(waiting[height + 1], start, middle, depth + 1, node, 1, np.int64(mixed(place)))
        height += 2
    return count


@scalar_kernel
def gather_block(codes: Array, order: Array, start: int, stop: int, block: Array) -> None:
    """Copy the codes of rows order[start:stop], eight at a time: block[row, group] = codes[group, order[row]]."""
    rows = order[start:stop]
    for group in range(codes.shape[0]):
        column = codes[group]
        for i in range(len(rows)):
            block[i, group] = column[np.uint32(rows[i])]
