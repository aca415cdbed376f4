"""Changes of membership, as one worker carries them out: make the group of the newest view, and agree on its state.

A worker goes through a change in its own process and with what it holds. Members first tell each other what they bring
(`handshake.py`); a checkpoint newer than that is read by one of them; who is behind is healed (`healing.py`); and what
is left of a step under way is divided among those who are there. Whatever breaks on the way is reported to the agent,
and the next view is waited for.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist

from weft.elastic.checkpoint.saver import Saver
from weft.elastic.data.shares import MemberSummary, Settlement, settle
from weft.elastic.membership.view import View
from weft.elastic.replica import state
from weft.elastic.replica.replica import InView, Replica
from weft.elastic.worker.beat import WAITING, Beat
from weft.elastic.worker.group import BROKEN, ViewGroup
from weft.elastic.worker.handshake import MemberCard, introduce
from weft.elastic.worker.healing import Healing
from weft.elastic.worker.link import AgentLink
from weft.elastic.worker.messages import GroupBroken, GroupFormed, ReadyToJoin


class Regrouping:
    """Brings a replica from one view into the next."""

    def __init__(
        self,
        replica: Replica,
        *,
        link: AgentLink,
        beat: Beat,
        group: ViewGroup,
        healing: Healing,
        saver: Saver,
        on_leave: Callable[[], object] | None,
    ) -> None:
        self._replica = replica
        self._link, self._beat = link, beat
        self._group, self._healing, self._saver = group, healing, saver
        self._on_leave = on_leave
        self._stays = False  # this worker was in the last view that it heard of

    def adopt(self, place: InView | None, error: BaseException | None = None) -> InView:
        """Make the group of the newest view, and have the same state as all its members.

        `place` is the one that is given up, None on arrival; `error` is what broke its group, if anything did.
        """
        self._beat.say(WAITING)
        formed = place.view.number if place is not None else -1
        if error is not None:
            self._link.tell(GroupBroken(formed, str(error)))
        elif place is None:
            self._link.tell(ReadyToJoin())
        while True:
            view = self._link.await_view(formed)
            rank = view.rank_of(self._link.name)
            if rank is None:
                formed, self._stays = view.number, False  # we were left out; perhaps we are let in again
                self._leave_if_asked()
                self._link.tell(ReadyToJoin())
                continue
            try:
                return self._form(view, rank)
            except BROKEN as error:
                formed = view.number
                self._link.tell(GroupBroken(view.number, f"{type(error).__name__}: {error}"))

    def _leave_if_asked(self) -> None:
        if self._link.drain:
            if self._on_leave is not None:
                self._on_leave()
            raise SystemExit(0)

    def _form(self, view: View, rank: int) -> InView:
        self._healing.over()
        self._group.form(view, rank)
        self._link.tell(GroupFormed(view.number))
        summaries = self._resume(view, rank, self._introduce(view))
        settlement = settle(summaries)
        if settlement.behind:
            self._heal(view, rank, settlement)
        place, self._stays = InView(view, rank), True
        self._share_step(place, summaries, settlement)
        self._replica.source.changed()
        return place

    def _introduce(self, view: View) -> list[MemberSummary]:
        """Tell the other members what this one brings, and hear what they bring."""
        replica = self._replica
        ours = MemberCard(
            replica.summary(stays=self._stays),
            data=replica.source.signature(),
            schema=state.schema(replica.objects),
            saved=tuple(self._saver.card(replica.objects, replica.source.header(), stays=self._stays)),
        )
        cards = introduce(view, ours, replica.source.micros_per_step)
        self._saver.meet([list(card.saved) for card in cards])
        return [card.summary for card in cards]

    def _resume(self, view: View, rank: int, summaries: list[MemberSummary]) -> list[MemberSummary]:
        """Have one member read a checkpoint that is newer than what anyone brings; it then heals the others."""
        while (reader := self._saver.reader(view, summaries)) is not None:
            image = self._saver.read(view) if rank == reader else None
            if image is not None:
                with self._saver.refusing():
                    self._replica.load(image)
            summaries = self._introduce(view)
        return summaries

    def _heal(self, view: View, rank: int, settlement: Settlement) -> None:
        """Offer the newest commit if this member has it, and get it if not."""
        replica = self._replica
        if rank in settlement.sources:
            self._healing.offer(view, replica.image(on_host=True, settled=True))
        if rank in settlement.behind:
            replica.healed = self._healing.receive(view, settlement)
            replica.load(replica.healed)
            self._beat.say(WAITING)
        self._healing.absent = frozenset(settlement.behind)
        if not settlement.base.stays:  # the run begins: all have something to compute
            self.meet_healed()

    def meet_healed(self) -> None:
        """Wait until all members have the newest commit; raises one of BROKEN."""
        meet_all()
        self._healing.over()

    def _share_step(self, place: InView, summaries: list[MemberSummary], settlement: Settlement) -> None:
        """Go on with the step that is under way, if the members that have the newest commit had begun it."""
        held = [
            frozenset() if rank in settlement.behind else summary.held
            for rank, summary in enumerate(summaries)
        ]
        if not any(held):
            self._replica.forget_step()
            return
        work = self._replica.work or self._replica.begin_step()
        if work is None:
            raise AssertionError(
                "a step that others have begun must have samples, got none; this is a bug in weft"
            )
        work.deal(place, self._healing.absent, self._replica.source.micros(work.step), held)


def meet_all() -> None:
    """Wait for all members of the present view; raises one of BROKEN if its group breaks."""
    count_all(False)


def count_all(here: bool) -> int:
    """Wait for all members of the present view; return for how many of them this is true."""
    count = torch.tensor([float(here)])
    dist.all_reduce(count)
    return int(count)
