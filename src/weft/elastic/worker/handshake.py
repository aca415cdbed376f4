"""The handshake of a new view: each member's card of numbers, which says what it brings, is gathered by all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from weft.elastic.data.shares import MemberSummary
from weft.elastic.membership.view import View
from weft.errors import UsageError


@dataclass(frozen=True)
class MemberCard:
    """The numbers that one member tells the others of itself."""

    summary: MemberSummary
    data: int  # the same for all who read the same data in the same way
    schema: int  # and for all who train the same model
    saved: tuple[int, ...]  # what it knows of checkpoints; see `checkpoint/saver.py`

    def numbers(self) -> list[int]:
        summary = self.summary
        return [
            summary.committed,
            summary.epoch,
            summary.start,
            int(summary.stays),
            self.data,
            self.schema,
            *self.saved,
        ]


def introduce(view: View, ours: MemberCard, micros: int) -> list[MemberCard]:
    """Hand out our card, and take everyone's; who does not belong here finds out. `micros`: of a step, at most."""
    cards = _gather(view, ours.numbers())
    if not ours.summary.stays:
        _compare(view, cards, ours)
    # Only now: members that cut steps differently would bring rows of different lengths.
    held = _gather(view, [int(micro in ours.summary.held) for micro in range(micros)])
    return [_card(numbers, flags) for numbers, flags in zip(cards, held, strict=True)]


def _gather(view: View, numbers: Sequence[int]) -> list[list[int]]:
    ours = torch.tensor(numbers, dtype=torch.int64)
    everyone = [torch.empty_like(ours) for _ in view.members]
    dist.all_gather(everyone, ours)
    return [row.tolist() for row in everyone]


def _card(numbers: Sequence[int], flags: Sequence[int]) -> MemberCard:
    committed, epoch, start, stays, data, schema, *saved = numbers
    summary = MemberSummary(
        committed=committed,
        epoch=epoch,
        start=start,
        stays=bool(stays),
        held=frozenset(micro for micro, flag in enumerate(flags) if flag),
        saved=saved[-1],
    )
    return MemberCard(summary, data, schema, tuple(saved))


def _compare(view: View, cards: Sequence[Sequence[int]], ours: MemberCard) -> None:
    """Refuse a newcomer that does not run the same as the members that are there."""
    others = [rank for rank, numbers in enumerate(cards) if numbers[3]] or [0]
    name = view.members[others[0]].worker
    data, schema = cards[others[0]][4:6]
    if data != ours.data:
        raise UsageError(
            f"all members must read the same data in the same way, got another length, batch or seed than {name}; "
            "check that the data set is the same on every host"
        )
    if schema != ours.schema:
        raise UsageError(
            f"all members must train the same model, got other objects or shapes than {name} registered"
        )
