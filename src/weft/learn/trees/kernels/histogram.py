"""Histograms: for each bin of each feature, the sum of its rows' words.

Places in arrays are counted without a sign, or from the start of a slice: Numba then need not ask whether they are
negative, and an update costs little more than its store.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.kernels.compiling import inlined
from weft.learn.kernels.prefetch import prefetch

Array = Any  # inside compiled code the types are Numba's

AHEAD = 48  # rows whose codes are asked for before they are needed


BYTE = np.uint64(255)


@inlined
def _add_all(hist: Array, c: Any, v: int) -> None:
    """Add a row's word to the bins of eight features, whose codes are the bytes of c."""
    hist[c & BYTE] += v
    hist[np.uint64(256) + ((c >> np.uint64(8)) & BYTE)] += v
    hist[np.uint64(512) + ((c >> np.uint64(16)) & BYTE)] += v
    hist[np.uint64(768) + ((c >> np.uint64(24)) & BYTE)] += v
    hist[np.uint64(1024) + ((c >> np.uint64(32)) & BYTE)] += v
    hist[np.uint64(1280) + ((c >> np.uint64(40)) & BYTE)] += v
    hist[np.uint64(1536) + ((c >> np.uint64(48)) & BYTE)] += v
    hist[np.uint64(1792) + (c >> np.uint64(56))] += v


@inlined
def _add_few(hist: Array, c: Any, v: int, wide: int) -> None:
    """Add a row's word to the bins of up to four features."""
    hist[c & BYTE] += v
    hist[np.uint64(256) + ((c >> np.uint64(8)) & BYTE)] += v
    if wide > 2:
        hist[np.uint64(512) + ((c >> np.uint64(16)) & BYTE)] += v
        hist[np.uint64(768) + ((c >> np.uint64(24)) & BYTE)] += v


@inlined
def add_group(
    codes: Array, order: Array, words: Array, start: int, stop: int, whole: bool, wide: int, out: Array
) -> None:
    """Add the words of rows order[start:stop] to out[word, 8 * 256], for `wide` (up to eight) features at once.

    `codes` is (rows,) uint64: a byte for each feature. `words` is (words, rows) in the order of `order`; where `whole`,
    rows are in their own order and `order` is not read.
    """
    rows, own = order[start:stop], codes[start:stop]
    ahead = order[start + AHEAD : stop + AHEAD]  # shorter, where there is nothing ahead
    for word in range(words.shape[0]):
        value, hist = words[word, start:stop], out[word]
        fetched = 0 if whole else len(ahead)
        if wide <= 4:
            for i in range(len(value)):
                if i < fetched:
                    prefetch(codes, np.uint32(ahead[i]))
                _add_few(hist, own[i] if whole else codes[np.uint32(rows[i])], value[i], wide)
        elif whole:
            for i in range(len(value)):
                _add_all(hist, own[i], value[i])
        else:
            for i in range(len(value)):
                if i < fetched:
                    prefetch(codes, np.uint32(ahead[i]))
                _add_all(hist, codes[np.uint32(rows[i])], value[i])
