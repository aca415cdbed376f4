"""Mode `explore`, the default: time the candidates for a dimension at a few sizes, and use the best for each.

It is done once for machines of a kind: the table is kept on disk, by a fingerprint of who shares which host. The clock
of the slowest peer counts, and all peers use the same table, or they would wait for each other in different modes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from weft.collectives.modes.mode import Background, Bounds, Mode, Pending, takes_many
from weft.collectives.modes.table import EXPLORE
from weft.collectives.reduction import Reduction
from weft.collectives.torch_private import copy_each
from weft.files import cache_folder, write_whole

SIZES = (4 << 10, 64 << 10, 1 << 20, 8 << 20)  # bytes
ROUNDS = 3
BUDGET_S = 1.2  # for one dimension; what is not measured by then takes the mode of the size before
BETTER = 0.9  # another mode than the first must take at most this share of its time

Table = dict[int, dict[str, float]]  # size: mode: seconds


def best_of(table: Table, preferred: str) -> dict[int, str]:
    """Return, for each size the mode to use; the preferred one unless another is clearly faster."""
    chosen = {}
    for size, times in sorted(table.items()):
        fastest = min(times, key=lambda name: times[name])
        first = times.get(preferred)
        chosen[size] = fastest if first is None or times[fastest] <= BETTER * first else preferred
    return chosen


def mode_for(nbytes: int, chosen: Mapping[int, str], preferred: str) -> str:
    """The mode of the measured size that is nearest from below; for the smallest ones, of the smallest."""
    below = [size for size in sorted(chosen) if size <= nbytes] or sorted(chosen)[:1]
    return chosen[below[-1]] if below else preferred


class Explorer:
    """All candidates of a dimension, each used where it is best."""

    name = EXPLORE

    def __init__(self, modes: Mapping[str, Mode], chosen: Mapping[int, str] | None = None) -> None:
        self._modes = dict(modes)
        self._preferred = next(iter(self._modes))
        self.chosen = dict(chosen or {})
        self._by_size: dict[int, Mode] = {}  # what was worked out for sizes seen so far
        self._first = self._modes[self._preferred]
        self.index, self.size = self._first.index, self._first.size

    def measure(self) -> Table:
        """Time every candidate; a collective call."""
        table: Table = {}
        began = time.perf_counter()
        for size in SIZES:
            values = torch.ones(size // 4)
            seconds = torch.tensor(
                [_seconds(mode, values) for mode in self._modes.values()] + [time.perf_counter() - began],
                dtype=torch.float64,
            )
            self._first.all_reduce(seconds, Reduction("MAX"))
            *slowest, elapsed = seconds.tolist()
            table[size] = dict(zip(self._modes, slowest, strict=True))
            if elapsed > BUDGET_S / 2:  # the next size would take longer than all so far
                break
        self.chosen = best_of(table, self._preferred)
        self._by_size.clear()
        return table

    def _mode(self, nbytes: int) -> Mode:
        mode = self._by_size.get(nbytes)
        if mode is None:
            mode = self._modes[mode_for(nbytes, self.chosen, self._preferred)]
            self._by_size[nbytes] = mode
        return mode

    def all_reduce(self, values: Tensor, reduction: Reduction) -> None:
        self._mode(values.nbytes).all_reduce(values, reduction)

    def _all_reduce_many(
        self, tensors: Sequence[Tensor], reduction: Reduction, after: Callable[[list[Tensor]], None]
    ) -> None:
        mode = self._mode(sum(tensor.nbytes for tensor in tensors))
        if takes_many(mode):
            mode.all_reduce_many(tensors, reduction, after)
            return
        together = torch.cat(list(tensors))
        mode.all_reduce(together, reduction)
        copy_each(list(tensors), list(torch.split(together, [tensor.numel() for tensor in tensors])))
        after(list(tensors))

    def start_all_reduce(self, values: Tensor, reduction: Reduction) -> Pending:
        return cast("Background", self._mode(values.nbytes)).start_all_reduce(values, reduction)

    # Only all-reduces are timed, and say nothing of these: Gloo's reduce_scatter, say, is a whole all-reduce.

    def reduce_scatter(self, values: Tensor, bounds: Bounds, reduction: Reduction) -> None:
        self._first.reduce_scatter(values, bounds, reduction)

    def all_gather(self, values: Tensor, bounds: Bounds) -> None:
        self._first.all_gather(values, bounds)

    def __getattr__(self, name: str) -> Any:
        if name in ("start_reduce_scatter", "start_all_gather"):  # where the first mode has them
            return getattr(self._first, name)
        if name == "all_reduce_many" and takes_many(self._first):
            return self._all_reduce_many
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def broadcast(self, values: Tensor, root: int) -> None:
        self._first.broadcast(values, root)

    def barrier(self) -> None:
        self._first.barrier()

    def close(self) -> None:
        for mode in self._modes.values():
            mode.close()


def _seconds(mode: Mode, values: Tensor) -> float:
    times = []
    for _ in range(ROUNDS + 1):
        mode.barrier()
        began = time.perf_counter()
        mode.all_reduce(values, Reduction("MAX"))
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first one warms up


def fingerprint(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps([*parts, SIZES]).encode()).hexdigest()[:20]


def load(key: str) -> str:
    """Return the choices kept for machines like these; empty if nothing was, or it is damaged."""
    try:
        text = (cache_folder("modes") / f"{key}.json").read_text()
        json.loads(text)
    except (OSError, ValueError):
        return ""
    return text


def save(key: str, text: str) -> None:
    """Keep the choices on disk; a disk that is full or not ours costs only the next start."""
    folder = cache_folder("modes")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{key}.json", text)
