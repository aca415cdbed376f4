"""The sources of samples: a data set that can be looked up, or one that can only be read in order.

Both keep to the order of the run, whatever the loader has read ahead: what was read for a share that is no longer ours
is dropped, and what became ours is read.
"""

from __future__ import annotations

import random
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate, get_worker_info

from weft.elastic.data.order import SampleOrder, TrainingStep

Collate = Callable[[list[Any]], Any]
Key = tuple[int, int, int, int]  # step, epoch, start, micro-batch
Planned = Callable[[], Iterator[tuple[TrainingStep, int]]]  # what we shall probably need, in order


class SampleSource(Protocol):
    """A source of steps and their samples: `MapFeed` or `StreamFeed`."""

    micros_per_step: int  # at most
    planned: Planned  # set by the loader; what is read ahead follows it

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch; None if they are known only when the data end."""

    def first(self, number: int, epoch: int, start: int) -> TrainingStep | None:
        """Return the step that begins at a position of an epoch, under this number; None at the epoch's end."""

    def micros(self, step: TrainingStep) -> int:
        """Count the micro-batches of a step."""

    def micro_size(self, step: TrainingStep, index: int) -> int:
        """Count the samples of a micro-batch."""

    def batch(self, step: TrainingStep, micro: int) -> Any:
        """Read and collate one micro-batch."""

    def changed(self) -> None:
        """Note that shares were dealt anew: what was read ahead may not be needed."""

    def digest(self, step: TrainingStep) -> str:
        """Return a checksum of the samples of a step, for the ledger."""

    def header(self) -> dict[str, Any]:
        """Return all that the samples of every step follow from, for the ledger."""

    def signature(self) -> int:
        """Return a number that is the same for all members that read the same data in the same way."""


def seeded(seed: int, step: TrainingStep, micro: int) -> None:
    """Random numbers of a micro-batch are the same whoever computes it: dropout, augmentation."""
    value = zlib.crc32(f"{seed} {step.epoch} {step.start} {micro}".encode())
    torch.manual_seed(value)
    random.seed(value)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(value)


def _key(step: TrainingStep, micro: int) -> Key:
    return step.number, step.epoch, step.start, micro


@dataclass(frozen=True)
class _FetchRequest:
    """One micro-batch for a loader's worker to fetch."""

    key: Key
    step: TrainingStep
    micro: int
    indices: list[int]


class _Fetching(Dataset[Any]):
    """Takes whole micro-batches as its indices, so that what comes out of a loader says what it is."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self._dataset, self._seed = dataset, seed

    def __getitems__(self, orders: Sequence[_FetchRequest]) -> list[tuple[Key, list[Any]]]:
        return [(order.key, self._fetch(order)) for order in orders]

    def _fetch(self, order: _FetchRequest) -> list[Any]:
        seeded(self._seed, order.step, order.micro)
        if callable(getattr(self._dataset, "__getitems__", None)):
            return list(self._dataset.__getitems__(order.indices))
        return [self._dataset[index] for index in order.indices]


class _Collating:
    """The script's own collate function, with the key kept beside."""

    def __init__(self, collate: Collate | None) -> None:
        self._collate = collate or default_collate

    def __call__(self, batches: list[tuple[Key, list[Any]]]) -> tuple[Key, Any]:
        [(key, samples)] = batches
        return key, self._collate(samples)


class MapFeed:
    """A data set with a length, whose samples can be looked up by number."""

    def __init__(
        self, dataset: Any, order: SampleOrder, *, collate: Collate | None = None, **options: Any
    ) -> None:
        self.order = order
        self.micros_per_step = -(-order.batch // order.micro)
        self.planned: Planned = lambda: iter(())
        self._plan: Iterator[tuple[TrainingStep, int]] = iter(())
        self._fetching = _Fetching(dataset, order.seed)
        self._collating = _Collating(collate)
        self._read: dict[Key, Any] = {}
        self._coming: Iterator[tuple[Key, Any]] | None = None
        self._loader: DataLoader[Any] | None = None
        if options.get("num_workers") or options.get("pin_memory"):
            self._loader = DataLoader(
                self._fetching, batch_sampler=self._Sampling(self), collate_fn=self._collating, **options
            )

    class _Sampling:
        """The sampler that the loader asks which samples to read next."""

        def __init__(self, feed: MapFeed) -> None:
            self._feed = feed

        def __iter__(self) -> Iterator[list[_FetchRequest]]:
            while (planned := next(self._feed._plan, None)) is not None:
                yield [self._feed._order_for(*planned)]

    @property
    def steps_per_epoch(self) -> int | None:
        return self.order.steps_per_epoch

    def first(self, number: int, epoch: int, start: int) -> TrainingStep | None:
        usable = self.order.steps_per_epoch * self.order.batch if self.order.drop_last else self.order.length
        return self.order.step_at(number, epoch, start) if start < usable else None

    def micros(self, step: TrainingStep) -> int:
        return self.order.micros(step)

    def micro_size(self, step: TrainingStep, index: int) -> int:
        return self.order.micro_size(step, index)

    def digest(self, step: TrainingStep) -> str:
        return self.order.digest(step)

    def signature(self) -> int:
        return zlib.crc32(repr(self.order).encode())

    def header(self) -> dict[str, Any]:
        return self.order.to_json()

    def _order_for(self, step: TrainingStep, micro: int) -> _FetchRequest:
        return _FetchRequest(_key(step, micro), step, micro, self.order.samples(step, micro).tolist())

    def batch(self, step: TrainingStep, micro: int) -> Any:
        """One micro-batch, collated."""
        order = self._order_for(step, micro)
        if self._loader is None:
            return self._collating(self._fetching.__getitems__([order]))[1]
        if order.key not in self._read:
            self._await(order.key, step, micro)
        batch = self._read.pop(order.key)
        self._read = {key: value for key, value in self._read.items() if key[:3] >= order.key[:3]}
        return batch

    def _await(self, key: Key, step: TrainingStep, micro: int) -> None:
        """Take what the loader has read until the wanted one is there; ask for it if it was never asked for."""
        assert self._loader is not None
        in_flight = self._loader.num_workers * (self._loader.prefetch_factor or 2)
        if self._coming is None:
            self._replan(step, micro)
            self._coming = iter(self._loader)
        for turn in range(2 * in_flight + 2):
            if turn == in_flight + 1:
                self._replan(step, micro)
            found, batch = next(self._coming)
            self._read[found] = batch
            if found == key:
                return
        raise AssertionError(f"micro-batch {micro} of step {step.number} must be read, got all others")

    def _replan(self, step: TrainingStep, micro: int) -> None:
        wanted = (step, micro)
        self._plan = chain([wanted], (planned for planned in self.planned() if planned != wanted))

    def changed(self) -> None:
        """Read ahead by the new shares from now on."""
        if self._coming is not None:
            self._plan = self.planned()


class StreamFeed:
    """A data set that can only be read from its beginning, the same on every member.

    Every member reads all of it and keeps what it needs; a newcomer reads up to where the others are.
    """

    steps_per_epoch = None

    def __init__(
        self,
        dataset: IterableDataset[Any],
        batch: int,
        micro: int,
        *,
        seed: int = 0,
        drop_last: bool = False,
        collate: Collate | None = None,
        **options: Any,
    ) -> None:
        self._dataset, self._batch, self._micro, self._seed = dataset, batch, micro, seed
        self._drop_last = drop_last
        self._collate = collate or default_collate
        self._options = options
        self.micros_per_step = -(-batch // micro)
        self.planned: Planned = lambda: iter(())
        self._reading: tuple[int, int, Iterator[list[Any]]] | None = None  # epoch, position, what follows
        self._step: TrainingStep | None = None
        self._samples: list[Any] = []

    def first(self, number: int, epoch: int, start: int) -> TrainingStep | None:
        if self._step is not None and (self._step.epoch, self._step.start) == (epoch, start):
            return TrainingStep(number, epoch, start, self._step.stop)
        if self._reading is None or self._reading[:2] != (epoch, start):
            self._reading = epoch, start, self._read(epoch, start)
        samples = next(self._reading[2], [])
        if not samples or (self._drop_last and len(samples) < self._batch):
            self._reading = self._step = None
            return None
        self._step = TrainingStep(number, epoch, start, start + len(samples))
        self._samples = samples
        self._reading = epoch, self._step.stop, self._reading[2]
        return self._step

    def _read(self, epoch: int, start: int) -> Iterator[list[Any]]:
        """The batches of an epoch from a position on."""
        reading = _Reading(self._dataset, epoch, start, self._batch)
        if not self._options.get("num_workers"):
            return iter(reading)
        return iter(DataLoader(reading, batch_size=None, collate_fn=_as_it_is, **self._options))

    def micros(self, step: TrainingStep) -> int:
        return -(-step.size // self._micro)

    def micro_size(self, step: TrainingStep, index: int) -> int:
        return min(self._micro, step.size - index * self._micro)

    def digest(self, step: TrainingStep) -> str:
        return f"{zlib.crc32(f'{step.epoch} {step.start} {step.stop}'.encode()):08x}"

    def signature(self) -> int:
        return zlib.crc32(f"{self._batch} {self._micro} {self._seed} {self._drop_last}".encode())

    def header(self) -> dict[str, Any]:
        return {
            "length": None,
            "batch": self._batch,
            "micro": self._micro,
            "seed": self._seed,
            "shuffle": False,
            "drop_last": self._drop_last,
        }

    def batch(self, step: TrainingStep, micro: int) -> Any:
        return self._collate(self._samples[micro * self._micro : (micro + 1) * self._micro])

    def changed(self) -> None:
        """Do nothing: every member reads the same samples ahead, whatever the view."""


class _Reading(IterableDataset[Any]):
    """Batches of a stream; with several loader workers each reads all of it and gives every nth batch."""

    def __init__(self, dataset: Any, epoch: int, start: int, batch: int) -> None:
        self._dataset, self._epoch, self._start, self._batch = dataset, epoch, start, batch

    def __iter__(self) -> Iterator[list[Any]]:
        worker = get_worker_info()
        turn, turns = (worker.id, worker.num_workers) if worker else (0, 1)
        if callable(getattr(self._dataset, "set_epoch", None)):
            self._dataset.set_epoch(self._epoch)
        samples = islice(iter(self._dataset), self._start, None)
        number = 0
        while batch := list(islice(samples, self._batch)):
            if number % turns == turn:
                yield batch
            number += 1


def _as_it_is(value: Any) -> Any:
    return value
