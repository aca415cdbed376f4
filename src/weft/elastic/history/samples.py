"""The samples of a ledger: where one of them went, and how spans of positions tile an epoch.

A sample is known by its number in the data set, and stands at one position of each epoch. A span is a run of
positions, [start, stop).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from weft.elastic.data.order import SampleOrder, TrainingStep
from weft.elastic.history.records import Ledger, StepRecord, history
from weft.errors import UsageError

Span = tuple[int, int]

_CHUNK = 1 << 16  # positions looked up at once


@dataclass(frozen=True, kw_only=True)
class SampleUse:
    """One time a sample was consumed."""

    epoch: int
    step: int
    view: int
    position: int
    micro_batch: int
    worker: str
    counts: bool  # False: the step was redone by a later view, and this is what was given up
    t: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def uses(ledger: Ledger, sample: int, epoch: int | None = None) -> tuple[SampleUse, ...]:
    """Every time a sample was consumed, in all epochs or in one."""
    length = ledger.header.length
    if sample < 0 or (length is not None and sample >= length):
        most = "at least 0" if length is None else f"from 0 to {length - 1}"
        raise UsageError(f"--sample must be {most}, got {sample}")
    counted = {(record.step, record.view) for record in history(ledger.records).records}
    positions: dict[int, int | None] = {}
    found: list[SampleUse] = []
    for record in ledger.records:
        if epoch is not None and record.epoch != epoch:
            continue
        if record.epoch not in positions:
            positions[record.epoch] = position_of(sample, record.epoch, ledger.header.order)
        position = positions[record.epoch]
        if position is not None and record.start <= position < record.stop:
            found += _of(record, position, ledger.header.micro, (record.step, record.view) in counted)
    # Hosts record the same step each for itself: without time and file those are one use.
    single = {(use.step, use.view, use.worker): use for use in sorted(found, key=lambda use: -use.t)}
    return tuple(sorted(single.values(), key=lambda use: (use.step, use.view, use.worker)))


def _of(record: StepRecord, position: int, size: int, counts: bool) -> Iterator[SampleUse]:
    micro = (position - record.start) // size
    for worker, micros in record.parts.items():
        if micro in micros:
            yield SampleUse(
                epoch=record.epoch,
                step=record.step,
                view=record.view,
                position=position,
                micro_batch=micro,
                worker=worker,
                counts=counts,
                t=record.t,
            )


def position_of(sample: int, epoch: int, order: SampleOrder | None) -> int | None:
    """Return where a sample stands in the order of an epoch; in a stream samples are numbered as they come."""
    if order is None:
        return sample
    for start in range(0, order.length, _CHUNK):
        numbers = order.samples(TrainingStep(0, epoch, start, min(start + _CHUNK, order.length)))
        (places,) = (numbers == sample).nonzero()
        if len(places):
            return start + int(places[0])
    return None


def tile(spans: Iterable[Span], low: int, high: int) -> tuple[list[Span], list[Span]]:
    """Return where spans leave [low, high) uncovered, and where they cover anything more than once."""
    turns: Counter[int] = Counter()
    for start, stop in spans:
        turns[start] += 1
        turns[stop] -= 1
    turns[low] += 0
    turns[high] += 0
    missing: list[Span] = []
    twice: list[Span] = []
    depth, places = 0, sorted(turns)
    for start, stop in pairwise(places):
        depth += turns[start]
        if depth == 0 and low <= start < high:
            missing.append((start, stop))
        elif depth > 1:
            twice.append((start, stop))
    return _joined(missing), _joined(twice)


def _joined(spans: Iterable[Span]) -> list[Span]:
    whole: list[Span] = []
    for start, stop in spans:
        if whole and whole[-1][1] == start:
            whole[-1] = (whole[-1][0], stop)
        else:
            whole.append((start, stop))
    return whole


def size_of(spans: Iterable[Span]) -> int:
    return sum(stop - start for start, stop in spans)


def format_span(span: Span) -> str:
    """`768-831`, or `12`: the last is meant, too."""
    return f"{span[0]}-{span[1] - 1}" if span[1] - span[0] > 1 else str(span[0])
