"""The start of a batch and the requests in it: one pure decision over the queue.

A batch starts as soon as a replica is free and either the batch is full or its oldest request has waited as long as
the bound allows. With a bound of 0 nobody waits for company: a batch is what gathered while every replica was busy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Protocol


class Waiting(Protocol):
    """One request in the queue, as far as batching is concerned."""

    @property
    def rows(self) -> int: ...

    @property
    def kind(self) -> Hashable:
        """Only requests of one kind (names, types, row shapes) share a batch."""

    @property
    def since(self) -> float: ...


@dataclass(frozen=True)
class Batch:
    """Start now, with the requests at these places of the queue."""

    places: tuple[int, ...]
    rows: int


@dataclass(frozen=True)
class Hold:
    """Wait for company until this time, or until somebody comes."""

    until: float


def next_batch(queue: Iterable[Waiting], now: float, max_batch: int, delay_s: float) -> Batch | Hold | None:
    """Return what to do with a free replica: the oldest request leads, others of its kind join while they fit."""
    places: list[int] = []
    rows = 0
    leader: Waiting | None = None
    for place, waiting in enumerate(queue):
        if leader is None:
            leader = waiting
        elif waiting.kind != leader.kind or rows + waiting.rows > max_batch:
            continue
        places.append(place)
        rows += waiting.rows
        if rows >= max_batch:
            break
    if leader is None:
        return None
    if rows >= max_batch or now >= leader.since + delay_s:
        return Batch(tuple(places), rows)
    return Hold(leader.since + delay_s)
