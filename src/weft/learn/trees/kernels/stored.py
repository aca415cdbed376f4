"""Trees of sparse tables: histograms of stored values alone, the bin of zeros being what is left of the node's total.

A stored value is the number of its bin among the bins of all columns; those of a column are neighbours. Rows keep
their stored values in the order of columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import scalar_kernel
from weft.learn.trees.kernels.split import MIN_ROWS, NONE, best_cut, best_pair_cut, node_score

Array = Any  # inside compiled code the types are Numba's


@scalar_kernel
def code_stored(data: Array, ends: Array, cuts: Array, cut_ends: Array, first: Array, out: Array) -> int:
    """Write the bin of every stored value of a CSC matrix, plus one; returns the place of an infinite one, or -1.

    `cuts` of column j are cuts[cut_ends[j]:cut_ends[j + 1]], ascending; its bins begin at first[j], and what is missing
    has the last of them.
    """
    bad = -1
    for j in range(ends.shape[0] - 1):
        own = cuts[cut_ends[j] : cut_ends[j + 1]]
        for k in range(ends[j], ends[j + 1]):
            x = np.float32(data[k])
            if x != x:
                out[k] = first[j + 1]
                continue
            if x - x != 0.0:
                bad = k
            low, high = 0, len(own)
            while low < high:
                middle = (low + high) >> 1
                if own[middle] < x:
                    low = middle + 1
                else:
                    high = middle
            out[k] = first[j] + low + 1
    return bad


@scalar_kernel
def add_stored(
    ends: Array, bins: Array, order: Array, words: Array, start: int, stop: int, hist: Array
) -> None:
    """Fill hist[word, bin] with the sums over rows order[start:stop] that store a value of that bin."""
    hist[:] = 0
    rows = order[start:stop]
    if words.shape[0] == 2:
        for i in range(len(rows)):
            row, word, more = np.uint32(rows[i]), words[0, start + i], words[1, start + i]
            for k in range(ends[row], ends[row + 1]):
                place = np.uint32(bins[k])
                hist[0, place] += word
                hist[1, place] += more
        return
    for w in range(words.shape[0]):
        value, sums = words[w, start:stop], hist[w]
        for i in range(len(rows)):
            row, word = np.uint32(rows[i]), value[i]
            for k in range(ends[row], ends[row + 1]):
                sums[np.uint32(bins[k])] += word


@scalar_kernel
def search_stored(
    hist: Array,
    first: Array,
    zeros: Array,
    total: Array,
    wanted: Array,
    fields: Array,
    scales: Array,
    limits: Array,
    criterion: int | None,
    widest: int,
    gains: Array,
    cuts: Array,
) -> None:
    """Find the best cut of each wanted column: gains[column], and cuts[column] = (bin, next bin, missing go left).

    `zeros[column]` is the bin of zero, whose rows are those of the node that store nothing else.
    """
    many = total.shape[0]
    entries, bins = np.empty((many, widest + 1), np.int64), np.empty(widest + 1, np.int64)
    left, right, missing = np.empty(many, np.int64), np.empty(many, np.int64), np.empty(many, np.int64)
    own = node_score(total, fields, scales, limits, criterion)
    word, shift, mask = fields[-1, 0], fields[-1, 1], fields[-1, 2]  # where rows are counted
    for j in range(zeros.shape[0]):
        gains[j] = NONE
        if not wanted[j]:
            continue
        begin, end = first[j], first[j + 1] - 1  # the last is for what is missing
        if limits[MIN_ROWS] > 0:  # one side of every cut has none but stored values
            stored = np.int64(0)
            for b in range(begin, end + 1):
                stored += hist[word, b]
            if (stored >> shift) & mask < limits[MIN_ROWS]:
                continue
        filled, zero_place = 0, -1
        if many <= 2:
            near, far, zero = hist[0, begin:end], hist[many - 1, begin:end], zeros[j] - begin
            for b in range(end - begin):
                here = b == zero
                entries[0, filled], entries[many - 1, filled], bins[filled] = near[b], far[b], b
                zero_place = filled if here else zero_place
                filled += here | (near[b] != 0) | (far[b] != 0)
        else:
            for b in range(begin, end):
                here = b == zeros[j]
                full = here
                for w in range(many):
                    entries[w, filled] = hist[w, b]
                    full = full or hist[w, b] != 0
                if here:
                    zero_place = filled
                bins[filled] = b - begin
                filled += full
        absent = True
        for w in range(many):
            missing[w] = hist[w, end]
            absent = absent and missing[w] == 0
            rest = total[w] - missing[w]
            for e in range(filled):
                if e != zero_place:
                    rest -= entries[w, e]
            entries[w, zero_place] = rest
        empty = True
        for w in range(many):
            empty = empty and entries[w, zero_place] == 0
        if empty:  # every row of the node stores a value
            for e in range(zero_place, filled - 1):
                bins[e] = bins[e + 1]
                for w in range(many):
                    entries[w, e] = entries[w, e + 1]
            filled -= 1
        if filled + (not absent) < 2:
            continue
        if criterion is None:
            score, place, to_left = best_pair_cut(
                entries, filled, missing[0], total[0], fields, scales, limits, NONE
            )
        else:
            score, place, to_left = best_cut(
                entries, filled, missing, total, fields, scales, limits, criterion, left, right
            )
        if place >= 0:
            gains[j] = score - own
            cuts[j, 0] = bins[place]
            cuts[j, 1] = bins[place + 1] if place + 1 < filled else -1
            cuts[j, 2] = 2 if absent else to_left


@scalar_kernel
def sum_left(
    hist: Array, total: Array, begin: int, end: int, zero: int, cut: int, to_left: bool, out: Array
) -> None:
    """Write the sums of the rows that go left of a cut: bins begin up to `cut`, and missing ones where `to_left`."""
    for w in range(total.shape[0]):
        below, others = np.int64(0), np.int64(0)
        for b in range(begin, end + 1):
            if b == zero:
                continue
            others += hist[w, b]
            if b <= cut or (b == end and to_left):
                below += hist[w, b]
        out[w] = below + (total[w] - others if zero <= cut else 0)


@scalar_kernel
def split_marked(
    holders: Array,
    codes: Array,
    order: Array,
    words: Array,
    start: int,
    stop: int,
    end: int,
    zero: int,
    cut: int,
    to_left: bool,
    marks: Array,
    spare: Array,
    spare_words: Array,
) -> int:
    """`split_stored` of many rows: those that store a value of the column and go against zeros are marked first.

    `holders` are the rows that store a value, and `codes` their bins. `marks` (rows,) are all 0, before and after.
    """
    zeros_left = np.uint8(zero <= cut)
    for k in range(holders.shape[0]):
        code = codes[k]
        side = np.uint8(to_left) if code == end else np.uint8(code <= cut)
        marks[np.uint32(holders[k])] = side ^ zeros_left
    near, far = np.uint64(start), np.uint64(start)
    many = words.shape[0]
    for i in range(start, stop):
        row = order[i]
        left = np.uint64(marks[np.uint32(row)] ^ zeros_left)
        order[near], spare[far] = row, row
        for w in range(many):
            word = words[w, i]
            words[w, near], spare_words[w, far] = word, word
        near += left
        far += np.uint64(1) - left
    for k in range(holders.shape[0]):
        marks[np.uint32(holders[k])] = 0
    moved = np.int64(far) - start
    border = np.int64(near)
    for i in range(moved):
        order[border + i] = spare[start + i]
    for w in range(many):
        for i in range(moved):
            words[w, border + i] = spare_words[w, start + i]
    return border  # type: ignore[return-value]  # Numba's int64


@scalar_kernel
def split_stored(
    ends: Array,
    bins: Array,
    order: Array,
    words: Array,
    start: int,
    stop: int,
    begin: int,
    end: int,
    zero: int,
    cut: int,
    to_left: bool,
    spare: Array,
    spare_words: Array,
) -> int:
    """Move rows of order[start:stop] that go left before the others, their words with them; returns the border."""
    near, far = start, start
    many = words.shape[0]
    for i in range(start, stop):
        row = order[i]
        low, high = ends[row], ends[row + 1]
        last = high
        while low < high:
            middle = (low + high) >> 1
            if bins[middle] < begin:
                low = middle + 1
            else:
                high = middle
        code = zero
        if low < last and bins[low] <= end:
            code = bins[low]
        side = to_left if code == end else code <= cut
        if side:
            order[near] = row
            for w in range(many):
                words[w, near] = words[w, i]
            near += 1
        else:
            spare[far] = row
            for w in range(many):
                spare_words[w, far] = words[w, i]
            far += 1
    for i in range(far - start):
        order[near + i] = spare[start + i]
    for w in range(many):
        for i in range(far - start):
            words[w, near + i] = spare_words[w, start + i]
    return near
