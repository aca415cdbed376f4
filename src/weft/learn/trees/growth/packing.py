"""The packing of the numbers that a split is judged by into 64-bit words, as whole numbers.

A histogram adds up one word for each row and feature, and most of the time of a fit is spent there: two numbers in one
word cost as much as one. Whole numbers are also exact: sums do not depend on the order, on threads or on workers.
Real numbers are rounded to as many bits as the sum over all rows leaves room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from weft.learn.workers.group import largest_over_workers, sum_over_workers

Array = np.ndarray[Any, Any]

ROOM = 62  # bits of a word that sums may use
STRETCH = 1 << 18
TOGETHER = 1 << 20  # rows up to which half a word leaves ten bits to each of them


@dataclass(frozen=True)
class Field:
    """One number: (word >> shift) & mask, times scale. The topmost of a word has all bits in its mask, and a sign."""

    word: int
    shift: int
    mask: int
    scale: float


@dataclass(frozen=True)
class Packing:
    """The fields, in the order that a criterion wants them; the last counts rows."""

    words: int
    fields: tuple[Field, ...]

    @cached_property
    def table(self) -> Array:
        return np.array([(one.word, one.shift, one.mask) for one in self.fields], np.int64)

    @cached_property
    def scales(self) -> Array:
        return np.array([one.scale for one in self.fields])

    @property
    def paired(self) -> bool:
        """Whether the first two fields share the only word, and the third is the first again."""
        return self.words == 1 and len(self.fields) == 3 and self.fields[2] == self.fields[0]

    @property
    def counted(self) -> bool:
        """Whether the first two fields share the first of two words, and the third is the second."""
        if self.words != 2 or len(self.fields) != 3:
            return False
        n, a, count = self.fields
        return n.word == a.word == 0 and count.word == 1 and count.shift == 0


@dataclass(frozen=True)
class Extent:
    """The extent that the packing depends on, of all workers' rows together."""

    rows: int
    weight: float  # the sum of all weights
    heaviest: float  # the largest weight
    whole: bool  # all weights are whole numbers
    largest: float = 0.0  # of |target|, or |first derivative|

    @property
    def counts(self) -> bool:
        """Whether weights can be added as they are."""
        return self.whole and self.weight < 2**40


def extent_of(weights: Array, largest: float = 0.0) -> Extent:
    """Return the extent of the rows, of all workers where several fit together."""
    whole = bool(np.all(weights == np.floor(weights)))
    rows, total, broken = sum_over_workers([float(len(weights)), float(weights.sum()), float(not whole)])
    heaviest, steepest = largest_over_workers(float(weights.max(initial=0.0))), largest_over_workers(largest)
    return Extent(int(rows), total, heaviest, not broken, steepest)


def _bits(total: float) -> int:
    return int(total).bit_length()


def pair_packing(extent: Extent, *, count_rows: bool, ones: bool) -> Packing:
    """Return the packing of N and A = N * target.

    `count_rows`: rows are counted apart from their weights; `ones`: all weights are 1.
    """
    if extent.counts:
        low = _bits(extent.weight)
        each = 2.0 ** (ROOM - low) / max(extent.weight, 1.0)
        # A target of zeros and ones stays as it is: its sums are exact and gains need no scale.
        scale = 1.0 if extent.largest == 1.0 else max(extent.largest, 1e-300) / np.floor(each)
        n, a = Field(0, 0, (1 << low) - 1, 1.0), Field(0, low, -1, scale)
        if ones or not count_rows:
            return Packing(1, (n, a, n))
        return Packing(2, (n, a, Field(1, 0, -1, 1.0)))
    n_scale = extent.heaviest * extent.rows / 2.0**ROOM
    n, a = Field(0, 0, -1, n_scale), Field(1, 0, -1, n_scale * max(extent.largest, 1e-300))
    return Packing(3, (n, a, Field(2, 0, -1, 1.0)))


@lru_cache(maxsize=64)
def derivative_packing(extent: Extent, *, count_rows: bool) -> Packing:
    """Return the packing of second (`heaviest`) and first (`largest`) derivatives: half a word or a word each."""
    together = extent.rows <= TOGETHER
    half = 31 if together else ROOM
    n = Field(0, 0, (1 << half) - 1, extent.heaviest * extent.rows / 2.0 ** (half - 1))
    scale = max(extent.largest, 1e-300) * extent.rows / 2.0 ** (half - 1)
    a = Field(0, half, -1, scale) if together else Field(1, 0, -1, scale)
    if count_rows:
        return Packing(a.word + 2, (n, a, Field(a.word + 1, 0, -1, 1.0)))
    return Packing(a.word + 1, (n, a, n))


def class_packing(extent: Extent, classes: int, *, count_rows: bool, ones: bool) -> Packing:
    """Return the packing of a weight for each class; as many share a word as fit."""
    if extent.counts:
        width = max(1, _bits(extent.weight))
        each = max(1, ROOM // width)
        fields = [Field(k // each, (k % each) * width, (1 << width) - 1, 1.0) for k in range(classes)]
    else:
        scale = extent.heaviest * extent.rows / 2.0**ROOM
        fields = [Field(k, 0, -1, scale) for k in range(classes)]
    words = fields[-1].word + 1
    # Nobody asks for the count where one row is enough: any field that is in reach will do.
    count = Field(words, 0, -1, 1.0) if count_rows or not ones else fields[0]
    return Packing(words + (count is not fields[0]), (*fields, count))


def pack_pair(packing: Packing, weights: Array, target: Array | float) -> Array:
    """Return the words (words, rows) of N and N * target."""
    words = np.zeros((packing.words, len(weights)), np.int64)
    for some in _stretches(len(weights)):
        goal = target[some] if isinstance(target, np.ndarray) else target
        _pack_pair(packing, weights[some], goal, words[:, some])
    return words


def _pack_pair(packing: Packing, weights: Array, target: Array | float, words: Array) -> None:
    n, a, count = packing.fields
    heavy = np.rint(weights / n.scale).astype(np.int64)
    if packing.words > 1:
        words[count.word] = 1
    if n.word == a.word:
        whole = np.rint(weights * target / a.scale).astype(np.int64)
        words[0] = (whole << a.shift) + heavy
    else:
        words[n.word] = np.maximum(heavy, 1)
        words[a.word] = np.rint(weights * target / a.scale)


def pack_classes(packing: Packing, weights: Array, codes: Array) -> Array:
    """Return the words of the weights of classes."""
    words = np.zeros((packing.words, len(weights)), np.int64)
    fields = packing.fields
    for some in _stretches(len(weights)):
        which = np.array([one.word for one in fields[:-1]])[codes[some]]
        shift = np.array([one.shift for one in fields[:-1]])[codes[some]]
        heavy = np.maximum(np.rint(weights[some] / fields[0].scale).astype(np.int64), 1)
        words[which, np.arange(some.start, some.stop)] = heavy << shift
    if fields[-1] != fields[0]:
        words[fields[-1].word] = 1
    return words


def _stretches(rows: int) -> list[slice]:
    """Yield stretches of rows that are worked on at once, so that temporary arrays stay small."""
    return [slice(start, min(start + STRETCH, rows)) for start in range(0, rows, STRETCH)]
