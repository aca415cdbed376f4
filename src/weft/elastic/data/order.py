"""The order of samples: a pure function of the seed, the epoch and the position in it.

An epoch is one pass over the data set in an order of its own. The order is computed where it is needed, sample by
sample, so that a billion samples take no memory, any position can be looked up at once, and every member finds the
same one whatever it did before. A step takes the next `batch` positions; it is cut into micro-batches, which are what
members are given to compute. Nothing here depends on how many members there are.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any

from weft.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ROUNDS = 6  # of the shuffling network; four would hide the input, six cost little more


@dataclass(frozen=True)
class TrainingStep:
    """One step: the positions [start, stop) of an epoch."""

    number: int  # over the whole run
    epoch: int
    start: int
    stop: int

    @property
    def size(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class SampleOrder:
    """The order of a data set, and how it is cut."""

    length: int
    batch: int
    micro: int
    seed: int = 0
    shuffle: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        for name in ("batch", "micro"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"a data set must fill at least one batch, got {self.length} samples for batches of {self.batch}"
                + ("; use a smaller batch or drop_last=False" if self.length else "")
            )

    @property
    def steps_per_epoch(self) -> int:
        whole, rest = divmod(self.length, self.batch)
        return whole if self.drop_last or not rest else whole + 1

    def step(self, number: int) -> TrainingStep:
        """The step of this number, if every epoch before it ran to its end."""
        epoch, index = divmod(number, self.steps_per_epoch)
        return self.step_at(number, epoch, index * self.batch)

    def step_at(self, number: int, epoch: int, start: int) -> TrainingStep:
        """The step that begins at a position of an epoch."""
        return TrainingStep(number, epoch, start, min(start + self.batch, self.length))

    def micros(self, step: TrainingStep) -> int:
        """Return how many micro-batches the step has."""
        return -(-step.size // self.micro)

    def micro_size(self, step: TrainingStep, index: int) -> int:
        """Return how many samples a micro-batch has; the last may be smaller."""
        return min(self.micro, step.size - index * self.micro)

    def samples(self, step: TrainingStep, index: int | None = None) -> NDArray[np.int64]:
        """The numbers of the samples of a step, or of one of its micro-batches."""
        import numpy as np

        start, stop = step.start, step.stop
        if index is not None:
            start += index * self.micro
            stop = min(start + self.micro, stop)
        positions = np.arange(start, stop, dtype=np.int64)
        return shuffled(positions, self.length, self.seed, step.epoch) if self.shuffle else positions

    def digest(self, step: TrainingStep) -> str:
        """A checksum over the sample numbers of a step."""
        return f"{zlib.crc32(self.samples(step).astype('<i8').tobytes()):08x}"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def shuffled(positions: NDArray[np.int64], length: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """Return the images of positions under the permutation of 0 to length - 1 of a seed and an epoch.

    A Feistel network on pairs (a, b) with a * b just above the length: each round adds to one half a hash of the other,
    so it can be undone and is a permutation of the pairs. What falls outside the length goes through again until it
    is inside, which keeps it a permutation of the length.
    """
    import numpy as np

    width = isqrt(max(0, length - 1)) + 1
    height = -(-length // width)
    keys = [_mixed(np.uint64((seed * 0x10001 + epoch) & _MASK), index + 1) for index in range(_ROUNDS)]
    values = positions.astype(np.uint64)
    outside = np.ones(len(values), dtype=bool)
    with np.errstate(over="ignore"):
        while outside.any():
            high, low = np.divmod(values[outside], np.uint64(width))
            for index, key in enumerate(keys):
                if index % 2:
                    low = (low + _mixed(high ^ key, index) % np.uint64(width)) % np.uint64(width)
                else:
                    high = (high + _mixed(low ^ key, index) % np.uint64(height)) % np.uint64(height)
            values[outside] = high * np.uint64(width) + low
            outside = values >= length
    return values.astype(np.int64)


_MASK = (1 << 64) - 1


def _mixed(values: Any, turn: int) -> Any:
    """A hash of 64-bit numbers (the finaliser of splitmix64)."""
    import numpy as np

    with np.errstate(over="ignore"):
        values = values + np.uint64((0x9E3779B97F4A7C15 * (turn + 1)) & _MASK)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
