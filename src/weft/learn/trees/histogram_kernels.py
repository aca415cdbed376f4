"""Histograms: for each bin of each feature, the sum of its rows' words."""

from __future__ import annotations

from typing import Any

from weft.learn.compiling import scalar_kernel
from weft.learn.prefetch_kernels import prefetch

Array = Any  # inside compiled code the types are Numba's

AHEAD = 48  # rows whose codes are asked for before they are needed


@scalar_kernel
def add_group(
    codes: Array, order: Array, words: Array, start: int, stop: int, whole: bool, wide: int, out: Array
) -> None:
    """Add the words of rows order[start:stop] to out[word, 8 * 256], for `wide` (up to eight) features at once.

    `codes` is (rows,) uint64: a byte for each feature. `words` is (words, rows) in the order of `order`; where `whole`,
    rows are in their own order and `order` is not read.
    """
    last = order.shape[0] - 1
    for word in range(words.shape[0]):
        value = words[word]
        hist = out[word]
        for i in range(start, stop):
            row = i if whole else order[i]
            if not whole:
                prefetch(codes, order[min(i + AHEAD, last)])
            c = codes[row]
            v = value[i]
            hist[c & 255] += v
            hist[256 + ((c >> 8) & 255)] += v
            if wide > 2:
                hist[512 + ((c >> 16) & 255)] += v
                hist[768 + ((c >> 24) & 255)] += v
            if wide > 4:
                hist[1024 + ((c >> 32) & 255)] += v
                hist[1280 + ((c >> 40) & 255)] += v
                hist[1536 + ((c >> 48) & 255)] += v
                hist[1792 + (c >> 56)] += v
