"""Where one sample went: the steps that consumed it, in which view, by which worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from weft.elastic.data.order import Order, Step
from weft.elastic.history.records import Ledger, Record, history
from weft.errors import UsageError

_CHUNK = 1 << 16  # positions looked up at once


@dataclass(frozen=True, kw_only=True)
class Use:
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


def uses(ledger: Ledger, sample: int, epoch: int | None = None) -> tuple[Use, ...]:
    """Every time a sample was consumed, in all epochs or in one."""
    length = ledger.header.length
    if sample < 0 or (length is not None and sample >= length):
        most = "at least 0" if length is None else f"from 0 to {length - 1}"
        raise UsageError(f"--sample must be {most}, got {sample}")
    counted = {(record.step, record.view) for record in history(ledger.records).records}
    positions: dict[int, int | None] = {}
    found: list[Use] = []
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


def _of(record: Record, position: int, size: int, counts: bool) -> Iterator[Use]:
    micro = (position - record.start) // size
    for worker, micros in record.parts.items():
        if micro in micros:
            yield Use(
                epoch=record.epoch,
                step=record.step,
                view=record.view,
                position=position,
                micro_batch=micro,
                worker=worker,
                counts=counts,
                t=record.t,
            )


def position_of(sample: int, epoch: int, order: Order | None) -> int | None:
    """Where a sample stands in the order of an epoch; in a stream samples are numbered as they come."""
    if order is None:
        return sample
    for start in range(0, order.length, _CHUNK):
        numbers = order.samples(Step(0, epoch, start, min(start + _CHUNK, order.length)))
        (places,) = (numbers == sample).nonzero()
        if len(places):
            return start + int(places[0])
    return None
