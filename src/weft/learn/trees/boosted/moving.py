"""The raw predictions of rows that took no part in a round: down its trees by their codes, which are at hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.learn.threads import ThreadTeam
from weft.learn.trees.growth.binning import Codes
from weft.learn.trees.growth.grown import Grown
from weft.learn.trees.kernels.depth import BIN, NEXT
from weft.learn.trees.kernels.split import MISSING
from weft.learn.trees.kernels.walk import add_coded
from weft.learn.trees.packed import pack

Array = np.ndarray[Any, Any]
CHUNK = 1 << 15  # rows moved by one task


def can_be_coded(grown: list[tuple[Grown, Array]], codes: Codes) -> bool:
    """Return whether codes are enough: in memory, and of numbers alone."""
    return codes.window is None and not any(one.sides for one, _ in grown)


def align(grown: list[tuple[Grown, Array]], codes: Codes) -> None:
    """Move thresholds from between two bins that hold rows of a node to the border of bins in the middle.

    Rows that took no part may be in bins between those two: codes must tell them apart as thresholds do.
    """
    if not can_be_coded(grown, codes):
        return
    for one, _ in grown:
        begin, after = one.nodes[:, BIN], one.nodes[:, NEXT]
        last = after == MISSING
        begin[last] = MISSING - 1
        begin[~last] += np.maximum(after[~last] - 1 - begin[~last], 0) // 2
        after[~last] = begin[~last] + 1


def add_coded_round(
    grown: list[tuple[Grown, Array]], codes: Codes, rows: Array, raw: Array, team: ThreadTeam
) -> None:
    """Add the values of a round's trees, one for each output, to raw[rows, output]."""
    values = codes.values
    if not codes.grouped:
        values = values.reshape(len(values), -1, 8).transpose(1, 0, 2)
    trees = [(one.feature, one.nodes[:, BIN], one.left, one.right, one.missing_left) for one, _ in grown]
    packed = pack(trees, [own[:, None] for _, own in grown], range(len(grown)))
    ends = [*packed.roots[1:], len(packed.nodes)]
    for output, (root, end) in enumerate(zip(packed.roots, ends, strict=True)):
        nodes = packed.nodes[root:end]
        nodes[:, 2] -= root  # the kernel begins at the first node
        arrays = int(packed.depths[output]), nodes, nodes.view(np.float32), packed.value[root:end]

        def part(start: int, output: int = output, arrays: Any = arrays) -> None:
            last = min(start + CHUNK, len(rows))
            add_coded(values, rows, start, last, *arrays, raw[:, output])  # type: ignore[call-arg]

        list(team.map(part, range(0, len(rows), CHUNK)))
