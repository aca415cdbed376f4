"""A whole tree in one call: the leaf whose cut gains most is split first, until there are leaves enough.

A node's histogram is its parent's less its sibling's. Bins lie close together: those of a feature, and of each bin the
word of N and A and, where rows are counted apart, their count beside it. All cuts of a feature are scored at once, so
that the processor works on several of them side by side; a node of few rows lists the bins that they are in.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined, scalar_kernel
from weft.learn.kernels.prefetch import prefetch
from weft.learn.trees.kernels.bits import lowest_bit
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
    draw,
    mixed,
    undraw,
)
from weft.learn.trees.kernels.histogram import AHEAD, BYTE
from weft.learn.trees.kernels.level import split_rows
from weft.learn.trees.kernels.split import L2, LEAST, MIN_GAIN, MIN_ROWS, MISSING, NONE

Array = Any  # inside compiled code the types are Numba's

FEW = 48  # rows up to which a node may list its bins
WORD, ROWS, PLACE, SIDE = range(4)  # of what a search passes on


@inlined
def _add_eight(
    codes: Array, rows: Array, ahead: Array, value: Array, begins: Array, sign: int, hist: Array
) -> None:
    """Add rows' words to the bins of eight features; where `rows` is empty, of all rows in their own order."""
    b0, b1, b2, b3 = np.uint64(begins[0]), np.uint64(begins[1]), np.uint64(begins[2]), np.uint64(begins[3])
    b4, b5, b6, b7 = np.uint64(begins[4]), np.uint64(begins[5]), np.uint64(begins[6]), np.uint64(begins[7])
    for i in range(len(value)):
        if i < len(ahead):
            prefetch(codes, np.uint32(ahead[i]))
        c: Any = codes[np.uint32(rows[i])] if len(rows) > 0 else codes[i]
        v = sign * value[i]
        hist[b0 + (c & BYTE)] += v
        hist[b1 + ((c >> np.uint64(8)) & BYTE)] += v
        hist[b2 + ((c >> np.uint64(16)) & BYTE)] += v
        hist[b3 + ((c >> np.uint64(24)) & BYTE)] += v
        hist[b4 + ((c >> np.uint64(32)) & BYTE)] += v
        hist[b5 + ((c >> np.uint64(40)) & BYTE)] += v
        hist[b6 + ((c >> np.uint64(48)) & BYTE)] += v
        hist[b7 + (c >> np.uint64(56))] += v


@inlined
def _count_eight(
    codes: Array, rows: Array, ahead: Array, value: Array, begins: Array, sign: int, hist: Array
) -> None:
    """`_add_eight`, and count the rows, beside their words."""
    b0, b1, b2, b3 = np.uint64(begins[0]), np.uint64(begins[1]), np.uint64(begins[2]), np.uint64(begins[3])
    b4, b5, b6, b7 = np.uint64(begins[4]), np.uint64(begins[5]), np.uint64(begins[6]), np.uint64(begins[7])
    one = np.uint64(1)
    for i in range(len(value)):
        if i < len(ahead):
            prefetch(codes, np.uint32(ahead[i]))
        c: Any = codes[np.uint32(rows[i])] if len(rows) > 0 else codes[i]
        v = sign * value[i]
        for place in (
            (b0 + (c & BYTE)) << one,
            (b1 + ((c >> np.uint64(8)) & BYTE)) << one,
            (b2 + ((c >> np.uint64(16)) & BYTE)) << one,
            (b3 + ((c >> np.uint64(24)) & BYTE)) << one,
            (b4 + ((c >> np.uint64(32)) & BYTE)) << one,
            (b5 + ((c >> np.uint64(40)) & BYTE)) << one,
            (b6 + ((c >> np.uint64(48)) & BYTE)) << one,
            (b7 + (c >> np.uint64(56))) << one,
        ):
            hist[place] += v
            hist[place + one] += sign


@inlined
def _add_column(
    column: Array, rows: Array, value: Array, begin: int, sign: int, step: int, hist: Array
) -> None:
    """Add rows' words, and where `step` is 2 the rows, to the bins of one feature."""
    first, stride = np.uint64(begin), np.uint64(step)
    for i in range(len(value)):
        place = (first + np.uint64(column[np.uint32(rows[i])])) * stride
        hist[place] += sign * value[i]
        if step == 2:
            hist[place + np.uint64(1)] += sign


@inlined
def _add_rows(
    groups: Array,
    apart: Array,
    order: Array,
    words: Array,
    start: int,
    stop: int,
    begins: Array,
    sign: int,
    criterion: int | None,
    hist: Array,
) -> None:
    """Add the rows order[start:stop] to a histogram, or take them away."""
    whole = stop - start == groups.shape[1]  # all rows, in their own order
    rows, value = order[start:stop], words[0, start:stop]
    ahead = order[start + AHEAD : stop + AHEAD]  # shorter, where there is nothing ahead
    if whole:
        rows = ahead = order[:0]
    for group in range(apart.shape[0] >> 3):
        edges = begins[8 * group : 8 * group + 8]
        if criterion is None:
            _add_eight(groups[group], rows, ahead, value, edges, sign, hist)
        else:
            _count_eight(groups[group], rows, ahead, value, edges, sign, hist)
    step = 1 if criterion is None else 2
    for feature in range(apart.shape[0] & -8, apart.shape[0]):
        _add_column(apart[feature], order[start:stop], value, begins[feature], sign, step, hist)


@inlined
def _list_few(
    column: Array,
    rows: Array,
    words: Array,
    start: int,
    criterion: int | None,
    sums: Array,
    out: Array,
    bins: Array,
) -> int:
    """List the bins that few rows are in, ascending, with their sums; `sums` is left as it was, empty."""
    seen = np.zeros(4, np.uint64)
    for i in range(len(rows)):
        code = np.uint64(column[np.uint32(rows[i])])
        seen[code >> np.uint64(6)] |= np.uint64(1) << (code & np.uint64(63))
        if criterion is None:
            sums[code] += words[0, start + i]
        else:
            sums[code << np.uint64(1)] += words[0, start + i]
            sums[(code << np.uint64(1)) + np.uint64(1)] += 1
    count = 0
    for part in range(4):
        bits = seen[part]
        while bits:
            code = 64 * part + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            bins[count] = code
            if criterion is None:
                out[count], sums[code] = sums[code], 0
            else:
                out[2 * count], sums[2 * code] = sums[2 * code], 0
                out[2 * count + 1], sums[2 * code + 1] = sums[2 * code + 1], 0
            count += 1
    return count


@inlined
def _score_cuts(
    entries: Array,
    count: int,
    before: Array,
    total: Array,
    fields: Array,
    scales: Array,
    limits: Array,
    criterion: int | None,
    sums: Array,
    held: Array,
    scores: Array,
) -> None:
    """Fill in what both sides of the cut after each entry score together; NONE where one of them is too small.

    `before` is what is on the left before the first entry.
    """
    shift, mask = fields[1, 1], fields[0, 2]
    n_scale, a_scale, l2, least, fewest = scales[0], scales[1], limits[L2], limits[LEAST], limits[MIN_ROWS]
    word, rows, all_rows = before[0], before[1], total[1]
    n, a = total[0] & mask, total[0] >> shift
    for e in range(count):
        if criterion is None:
            word += entries[e]
        else:
            word += entries[2 * e]
            rows += entries[2 * e + 1]
            held[e] = rows
        sums[e] = word
    for e in range(count):
        near, some = sums[e] & mask, sums[e] >> shift
        # Whole numbers are subtracted: cuts whose two sides are each other's mirror score exactly alike.
        n_left, n_right = near * n_scale, (n - near) * n_scale
        a_left, a_right = some * a_scale, (a - some) * a_scale
        score = a_left * a_left / (n_left + l2) + a_right * a_right / (n_right + l2)
        if criterion is None:
            fine = (n_left >= least) & (n_right >= least) & (near > 0) & (near < n)
        else:
            fine = (held[e] >= fewest) & (all_rows - held[e] >= fewest) & (held[e] > 0) & (held[e] < all_rows)
        scores[e] = score if fine else NONE


@inlined
def _next_filled(entries: Array, place: int, count: int, many: int) -> int:
    """Return the next entry that holds rows; `count` where there is none."""
    place += 1
    while place < count and entries[many * place] == 0:
        place += 1
    return place


@inlined
def _push(heap: Array, keys: Array, size: int, node: int) -> None:
    """Put a node among those that wait, the one with the largest key first; of equal ones the older."""
    here = size
    while here > 0:
        above = (here - 1) >> 1
        if keys[heap[above]] >= keys[node]:
            break
        heap[here] = heap[above]
        here = above
    heap[here] = node


@inlined
def _pop(heap: Array, keys: Array, size: int) -> int:
    """Take the first of those that wait."""
    first, node = heap[0], heap[size - 1]
    here, last = 0, size - 1
    while 2 * here + 1 < last:
        below = 2 * here + 1
        if below + 1 < last and keys[heap[below + 1]] > keys[heap[below]]:
            below += 1
        if keys[heap[below]] <= keys[node]:
            break
        heap[here] = heap[below]
        here = below
    heap[here] = node
    return first  # type: ignore[no-any-return]


@inlined
def _in_depth_first_order(nodes: Array, gains: Array, count: int, waiting: Array) -> None:
    """Put the nodes in depth-first order, left before right."""
    old, old_gains = nodes[:count].copy(), gains[:count].copy()
    height, new = 1, 0
    waiting[0] = 0
    parents = np.full(count, -1, np.int64)
    while height > 0:
        height -= 1
        node = waiting[height]
        for part in range(9):
            nodes[new, part] = old[node, part]
        gains[new] = old_gains[node]
        if parents[node] >= 0:
            parent = parents[node]
            nodes[parent >> 1, LEFT + (parent & 1)] = new
        if old[node, LEFT] >= 0:
            parents[old[node, LEFT]], parents[old[node, RIGHT]] = 2 * new, 2 * new + 1
            waiting[height], waiting[height + 1] = old[node, RIGHT], old[node, LEFT]
            height += 2
        new += 1


@scalar_kernel
def grow_best_first(
    groups: Array,
    apart: Array,
    begins: Array,
    order: Array,
    words: Array,
    seed: int,
    max_depth: int,
    min_split: int,
    max_features: int,
    max_leaves: int,
    few: int,
    fields: Array,
    scales: Array,
    limits: Array,
    criterion: int | None,
    spare: Array,
    spare_words: Array,
    pool: Array,
    nodes: Array,
    gains: Array,
) -> int:
    """Grow a tree for rows order[:], whose words are words[0, :]; both are permuted.

    `groups` is (groups, rows) uint64, eight codes each, and `apart` (features, rows) has the same codes; the bins of a
    feature are begins[feature] : begins[feature + 1], 256 of them where values are missing. `criterion` is None where
    no rows are counted, else each bin has a count beside its word. `pool` is (slots, bins * (1 or 2));
    the first slot is never kept. `max_leaves` is 0 where any number will do; nodes of up to `few` rows list their bins,
    and need no slot. Fills nodes (see depth.py) and gains, in
    depth-first order; returns how many nodes there are.
    """
    many, features = 1 if criterion is None else 2, len(begins) - 1
    room = len(nodes)
    slots, heap = np.empty(room, np.int64), np.empty(room + 1, np.int64)
    keys, places = np.empty(room), np.empty(room, np.uint64)
    totals = np.zeros((room, 2), np.int64)
    free, free_count = np.empty(len(pool), np.int64), 0
    for slot in range(len(pool) - 1, 0, -1):
        free[free_count] = slot
        free_count += 1
    entries, bins, counted = np.empty(512, np.int64), np.empty(257, np.int64), np.zeros(512, np.int64)
    sums, held, scores = np.empty(256, np.int64), np.empty(256, np.int64), np.empty(256)
    before, missing = np.zeros(2, np.int64), np.zeros(2, np.int64)
    sides = np.empty(256, np.uint8)
    some = max_features < features
    names, picks = np.empty(features, np.int64), np.empty(features, np.int64)
    for k in range(features):
        names[k] = k
    nodes[0, START], nodes[0, STOP], nodes[0, DEPTH] = 0, len(order), 0
    for i in range(len(order)):
        totals[0, 0] += words[0, i]
    totals[0, 1], places[0] = len(order), np.uint64(seed)
    count, leaves, waiting, kept = 1, 1, 0, -1
    first, children = 0, 1  # the nodes that are new
    while True:
        # The larger one comes first: its histogram is the parent's, which is there already, less the other's.
        large = first
        if children == 2 and totals[first + 1, 1] > totals[first, 1]:
            large = first + 1
        for part in range(children):
            node = large if part == 0 else 2 * first + 1 - large
            start, stop, depth = nodes[node, START], nodes[node, STOP], nodes[node, DEPTH]
            nodes[node, FEATURE], nodes[node, LEFT], nodes[node, RIGHT] = -1, -1, -1
            nodes[node, BIN], nodes[node, NEXT], nodes[node, TO_LEFT] = 0, 0, 0
            gains[node] = 0.0
            rows = stop - start
            able = rows >= min_split and depth < max_depth and (leaves < max_leaves or max_leaves == 0)
            listed = rows <= few
            if part == 0:
                slots[first], slots[first + children - 1] = -1, -1
                if able and not listed and kept >= 0:
                    other = 2 * first + 1 - large
                    begin, end = nodes[other, START], nodes[other, STOP]
                    if end - begin > few and end - begin >= min_split and free_count > 0:
                        free_count -= 1
                        slot = free[free_count]
                        slots[other] = slot
                        less, more = pool[kept], pool[slot]
                        more[:] = 0
                        _add_rows(groups, apart, order, words, begin, end, begins, 1, criterion, more)
                        for b in range(len(less)):
                            less[b] -= more[b]
                    else:
                        _add_rows(groups, apart, order, words, begin, end, begins, -1, criterion, pool[kept])
                    slots[node] = kept
                elif kept >= 0:
                    free[free_count] = kept
                    free_count += 1
            if not able:
                continue
            hist = pool[max(slots[node], 0)]
            if not listed and slots[node] < 0:
                if free_count > 0:
                    free_count -= 1
                    slots[node] = free[free_count]
                    hist = pool[slots[node]]
                hist[:] = 0
                _add_rows(groups, apart, order, words, start, stop, begins, 1, criterion, hist)
            total = totals[node]
            n = (total[0] & fields[0, 2]) * scales[0]
            a = (total[0] >> fields[1, 1]) * scales[1]
            own = a * a / (n + limits[L2])
            best, best_feature = NONE, -1
            state, visited = places[node], 0
            while visited < features and (visited < max_features or best_feature < 0):
                if some:
                    state = draw(names, picks, visited, visited + 1, state)
                feature = names[visited]
                visited += 1
                if listed:
                    filled = _list_few(
                        apart[feature], order[start:stop], words, start, criterion, counted, entries, bins
                    )
                    values = entries
                    holes = bins[filled - 1] == MISSING
                    last = filled - 1
                else:
                    values = hist[many * begins[feature] : many * begins[feature + 1]]
                    filled = begins[feature + 1] - begins[feature]
                    holes = filled == 256 and values[many * 255] != 0
                    last = 255
                missing[0], missing[1] = 0, 0
                if holes:
                    filled = last
                    missing[0], missing[1] = values[many * last], values[many * last + many - 1]
                for side in range(2 if holes else 1):
                    before[0], before[1] = side * missing[0], side * missing[1]
                    _score_cuts(
                        values,
                        filled,
                        before,
                        total,
                        fields,
                        scales,
                        limits,
                        criterion,
                        sums,
                        held,
                        scores,
                    )
                    for e in range(filled):
                        if scores[e] > best:
                            best, best_feature = scores[e], feature
                            nodes[node, BIN], nodes[node, TO_LEFT] = e, 2
                            if holes:
                                nodes[node, TO_LEFT] = side
                    if best_feature == feature and (side == 0 or nodes[node, TO_LEFT] == 1):
                        place = nodes[node, BIN]
                        after = _next_filled(values, place, filled, many)
                        if listed:
                            nodes[node, NEXT] = bins[after] if after < filled else MISSING
                        else:
                            nodes[node, NEXT] = after if after < filled else MISSING
                if listed and best_feature == feature:
                    nodes[node, BIN] = bins[nodes[node, BIN]]
            if some:
                undraw(names, picks, visited)
            if best_feature >= 0 and best - own >= limits[MIN_GAIN]:
                nodes[node, FEATURE] = best_feature
                gains[node] = best - own
                keys[node] = gains[node] if max_leaves > 0 else depth
                _push(heap, keys, waiting, node)
                waiting += 1
            elif slots[node] >= 0:
                free[free_count] = slots[node]
                free_count += 1
        if waiting == 0 or (leaves >= max_leaves and max_leaves > 0):
            break
        parent = _pop(heap, keys, waiting)
        waiting -= 1
        kept = slots[parent]
        start, stop, cut = nodes[parent, START], nodes[parent, STOP], nodes[parent, BIN]
        for code in range(256):
            sides[code] = code <= cut
        sides[MISSING] = nodes[parent, TO_LEFT] == 1
        middle = split_rows(
            apart[nodes[parent, FEATURE]], sides, order, words, start, stop, spare, spare_words
        )
        first, children = count, 2
        count += 2
        leaves += 1
        nodes[parent, LEFT], nodes[parent, RIGHT] = first, first + 1
        nodes[first, START], nodes[first, STOP] = start, middle
        nodes[first + 1, START], nodes[first + 1, STOP] = middle, stop
        nodes[first, DEPTH] = nodes[first + 1, DEPTH] = nodes[parent, DEPTH] + 1
        places[first], places[first + 1] = mixed(places[parent]), mixed(places[parent] ^ np.uint64(1))
        near = first if middle - start < stop - middle else first + 1
        total = totals[near]
        total[0], total[1] = 0, nodes[near, STOP] - nodes[near, START]
        for i in range(nodes[near, START], nodes[near, STOP]):
            total[0] += words[0, i]
        far = 2 * first + 1 - near
        totals[far, 0] = totals[parent, 0] - total[0]
        totals[far, 1] = totals[parent, 1] - total[1]
    # What waits no longer matters: its node stays a leaf.
    for k in range(waiting):
        node = heap[k]
        nodes[node, FEATURE], gains[node] = -1, 0.0
        nodes[node, BIN], nodes[node, NEXT], nodes[node, TO_LEFT] = 0, 0, 0
    _in_depth_first_order(nodes, gains, count, heap)
    return count
