"""Histograms: for each bin of each feature, the sum of its rows' words."""

from __future__ import annotations

from typing import Any

from weft.learn.compiling import inlined, scalar_kernel
from weft.learn.prefetch_kernels import prefetch

Array = Any  # inside compiled code the types are Numba's

AHEAD = 48  # rows whose codes are asked for before they are needed


@inlined
def _add_all(hist: Array, c: Any, v: int) -> None:
    """Add a row's word to the bins of eight features, whose codes are the bytes of c."""
    hist[c & 255] += v
    hist[256 + ((c >> 8) & 255)] += v
    hist[512 + ((c >> 16) & 255)] += v
    hist[768 + ((c >> 24) & 255)] += v
    hist[1024 + ((c >> 32) & 255)] += v
    hist[1280 + ((c >> 40) & 255)] += v
    hist[1536 + ((c >> 48) & 255)] += v
    hist[1792 + (c >> 56)] += v


@inlined
def _add_few(hist: Array, c: Any, v: int, wide: int) -> None:
    """The same, of up to four."""
    hist[c & 255] += v
    hist[256 + ((c >> 8) & 255)] += v
    if wide > 2:
        hist[512 + ((c >> 16) & 255)] += v
        hist[768 + ((c >> 24) & 255)] += v


@scalar_kernel
def add_group(
    codes: Array, order: Array, words: Array, start: int, stop: int, whole: bool, wide: int, out: Array
) -> None:
    """Add the words of rows order[start:stop] to out[word, 8 * 256], for `wide` (up to eight) features at once.

    `codes` is (rows,) uint64: a byte for each feature. `words` is (words, rows) in the order of `order`; where `whole`,
    rows are in their own order and `order` is not read.
    """
    for word in range(words.shape[0]):
        value, hist = words[word], out[word]
        near = max(start, min(stop, order.shape[0] - AHEAD))  # from here on there is nothing ahead
        if wide <= 4:
            for i in range(start, stop):
                _add_few(hist, codes[i if whole else order[i]], value[i], wide)
        elif whole:
            for i in range(start, stop):
                _add_all(hist, codes[i], value[i])
        else:
            for i in range(start, near):
                prefetch(codes, order[i + AHEAD])
                _add_all(hist, codes[order[i]], value[i])
            for i in range(near, stop):
                _add_all(hist, codes[order[i]], value[i])
