"""A worker's part in an elastic run: it computes its share of each step, commits it with the others, and, when one of
them is lost or comes, makes a new group with those who are left, in the same process and with what it holds.

The life of a step: micro-batches are computed one by one; after the last one gradients are summed over all members;
`optimizer.step()` applies them; the step commits when the loop body has ended. What fails before that is done again
by those who are left, from what they hold: parameters have not changed, so nothing has to be undone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from weft.elastic.checkpoint.saver import RefusedError, Saver
from weft.elastic.data.order import Step
from weft.elastic.data.shares import Settlement, Summary, deal, settle
from weft.elastic.membership.view import View
from weft.elastic.worker import state
from weft.elastic.worker.beat import COMPUTING, LOADING, OUTSIDE, WAITING, Beat
from weft.elastic.worker.buffers import Buffers
from weft.elastic.worker.gradients import Gradients, all_reduce
from weft.elastic.worker.group import BROKEN, Gathering
from weft.elastic.worker.handshake import Card, introduce
from weft.elastic.worker.healing import Healing
from weft.elastic.worker.link import Link, RunOver
from weft.errors import CollectiveError, UsageError


@dataclass(frozen=True)
class Ticket:
    """One micro-batch to compute."""

    step: Step
    micro: int
    weight: float  # its part of the step's samples; 0: only to go through the loop body with the others
    last: bool  # of this member's share


class Source(Protocol):
    """Where steps and their samples come from; see `data/feed.py`."""

    micros_per_step: int

    def first(self, number: int, epoch: int, start: int) -> Step | None: ...
    def micros(self, step: Step) -> int: ...
    def micro_size(self, step: Step, index: int) -> int: ...
    def digest(self, step: Step) -> str: ...
    def changed(self) -> None: ...
    def header(self) -> dict[str, Any]: ...
    def signature(self) -> int: ...


class Participant:
    """What a worker knows of the run, and what it does about changes."""

    def __init__(
        self, link: Link, beat: Beat, *, address: str, secret: str, reproducible: bool = False
    ) -> None:
        self._link, self._beat, self._reproducible = link, beat, reproducible
        self._healing = Healing(link, beat, address, secret)
        self._gathering = Gathering(link, address)
        self.objects: dict[str, Any] = {}
        self.source: Source | None = None
        self.gradients: Gradients | None = None
        self._buffers = Buffers()
        self.view: View | None = None  # whose group stands
        self._rank = 0  # in that view
        self.committed = self.epoch = self.start = 0
        self.step: Step | None = None
        self.ticket: Ticket | None = None
        self._held: set[int] = set()
        self.todo: deque[int] = deque()
        self._parts: dict[str, list[int]] = {}
        self._stays = False
        self.ready = False  # the sum of all gradients is there
        self.applied = False  # and has been given to the optimizer
        self._change_due = False
        self._first_in_view = False
        self._healed: state.Image | None = None
        self.on_leave: Callable[[], object] | None = None
        self.saver = Saver(link, secret)
        link.on_urgent = self._gathering.let_go
        link.tell("hello", store_port=self.store_port, heal_port=self.heal_port)

    # -- who we are -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._link.name

    @property
    def store_port(self) -> int:
        return self._gathering.port

    @property
    def heal_port(self) -> int:
        return self._healing.port

    # -- what the script registers ----------------------------------------------------------------

    def attend(self, source: Source) -> None:
        """Take the samples from here."""
        self.source = source
        self._link.tell("header", header=source.header())

    def register(self, objects: Mapping[str, Any]) -> None:
        state.check(objects)
        self.objects.update(objects)

    def _prepare(self) -> None:
        """Everything is registered: see to the gradients and buffers of the models among it."""
        assert self.source is not None
        modules = [value for value in self.objects.values() if isinstance(value, nn.Module)]
        parameters = dict.fromkeys(parameter for module in modules for parameter in module.parameters())
        rows = self.source.micros_per_step if self._reproducible else 1
        self.gradients = Gradients(parameters, all_reduce, rows=rows)
        self._buffers = Buffers(modules)

    # -- the loop ---------------------------------------------------------------------------------

    def arrive(self) -> None:
        """Become a member, at the place where the others are."""
        if self.view is None:
            self._prepare()
            try:
                self._adopt()
            except RunOver:
                raise SystemExit(0) from None
            except UsageError as error:
                self._link.refuse(error, for_all=isinstance(error, RefusedError))
            self._healed = None

    def pause(self) -> None:
        """The script does something else than its loop."""
        self._beat.say(OUTSIDE)

    def resume(self) -> None:
        self._beat.begin()

    def next_ticket(self, epoch: int) -> Ticket | None:
        """The next micro-batch to compute; None at the end of this epoch. The one before it is over with this."""
        self.close_ticket()
        if self.view is None or self._change_due or self._link.lost_someone(self.view.number):
            self._adopt()
        self._beat.say(LOADING, lenient=self.start == 0)
        if self.epoch != epoch:
            return None
        if self.step is None and not self._begin_step():
            self.await_healed()
            self.epoch, self.start = self.epoch + 1, 0
            return None
        assert self.step is not None
        assert self.source is not None
        if self.todo:
            micro = self.todo.popleft()
            weight = self.source.micro_size(self.step, micro) / self.step.size
        else:
            micro, weight = 0, 0.0
        self.ticket = Ticket(self.step, micro, weight, last=not self.todo)
        return self.ticket

    def begin(self) -> None:
        """The micro-batch is loaded; its computation begins."""
        assert self.ticket is not None
        assert self.gradients is not None
        self._buffers.restore()
        self.gradients.begin(
            self.ticket.micro, self.ticket.weight, last=self.ticket.last, then=self._computed
        )
        self._beat.begin()

    def close_ticket(self) -> None:
        """The loop body has ended: if it was the one that applied the step, the step commits."""
        ticket, self.ticket = self.ticket, None
        if self.gradients is not None:
            self.gradients.end()
        if self.ready:
            self._commit()
            return
        if ticket is None or not ticket.weight or ticket.step is not self.step:
            return
        if ticket.micro not in self._held:
            raise UsageError(
                "every micro-batch must be followed by loss.backward(), got a loop body without it; a batch can be "
                "left out by multiplying its loss by 0"
            )

    def _begin_step(self) -> bool:
        assert self.source is not None
        assert self.view is not None
        self.step = self.source.first(self.committed, self.epoch, self.start)
        if self.step is None:
            return False
        self._deal([frozenset()] * self.view.size)
        return True

    def _deal(self, held: list[frozenset[int]]) -> None:
        """Find out what is left for us of the present step, and who will have computed what."""
        assert self.view is not None
        assert self.source is not None
        assert self.step is not None
        weights = [
            0.0 if rank in self._healing.absent else member.weight
            for rank, member in enumerate(self.view.members)
        ]
        shares = deal(self.source.micros(self.step), weights, held)
        self.todo = deque(shares[self._rank])
        self._parts = {
            member.worker: sorted(own | set(share))
            for member, own, share in zip(self.view.members, held, shares, strict=True)
        }

    def _computed(self) -> None:
        """The backward pass of a micro-batch has ended."""
        ticket = self.ticket
        if ticket is None:
            return
        if ticket.weight:
            self._beat.computed()
            self._held.add(ticket.micro)
            if ticket.micro == 0:
                self._buffers.first_computed()
        if ticket.last:
            self._settle()

    def _settle(self) -> None:
        """Sum the gradients over all members; repair what breaks, until it is done or there is more to compute."""
        assert self.gradients is not None
        self._beat.say(WAITING)
        step = self.step
        while True:
            try:
                self._reduce()
            except BROKEN as error:
                self.gradients.give_up()
                self._adopt(error)
                if self.step is not step or self.todo:
                    break
            else:
                self._healing.over()
                self.ready = True
                break
        self._beat.say(COMPUTING, lenient=self._first_in_view)

    def _reduce(self) -> None:
        assert self.view is not None
        assert self.gradients is not None
        assert self.source is not None
        assert self.step is not None
        if self._link.lost_someone(self.view.number):
            raise CollectiveError("a member is lost")
        micros = self.source.micros(self.step)
        votes = torch.zeros(micros + 3 + len(self.gradients.parameters), dtype=torch.float64)
        votes[[*self._held]] = 1.0
        votes[micros] = float(self._link.newer_than(self.view.number))
        votes[micros + 1 : micros + 3] = torch.tensor(self.saver.vote(self.committed + 1, self._rank))
        votes[micros + 3 :] = self.gradients.touched()
        self.gradients.launch()
        works = [all_reduce(votes)]
        buffers = self._buffers.to_sum()
        works += [all_reduce(flat) for flat in buffers.values()]
        self.gradients.wait()
        for work in works:
            work.wait()
        counted = votes[:micros].tolist()
        if set(counted) != {1.0}:
            raise AssertionError(
                f"every micro-batch of step {self.step.number} must count once, got {counted}; this is a bug in weft"
            )
        self._change_due = bool(votes[micros])
        self.saver.voted(float(votes[micros + 1]), float(votes[micros + 2]))
        self._buffers.take(buffers)
        self.gradients.show(votes[micros + 3 :].tolist())

    def _commit(self) -> None:
        assert self.step is not None
        assert self.gradients is not None
        assert self.view is not None
        assert self.source is not None
        step = self.step
        self._buffers.commit()
        self.committed, self.start = self.committed + 1, step.stop
        self._forget_step()
        self._healed = None
        self._beat.committed()
        record = {
            "step": step.number,
            "epoch": step.epoch,
            "start": step.start,
            "stop": step.stop,
            "view": self.view.number,
            "parts": self._parts,
            "digest": self.source.digest(step),
            "t": time.time(),
        }
        self._link.tell("commit", record=record, first=self._first_in_view)
        self._first_in_view = False
        self.saver.committed(self.view, self._rank, self._position, self._image)

    def _forget_step(self) -> None:
        """Drop what belongs to the present step only."""
        assert self.gradients is not None
        self.gradients.clear()
        self._buffers.forget_step()
        self.step = None
        self._held.clear()
        self.todo.clear()
        self.ready = self.applied = False

    # -- changes ----------------------------------------------------------------------------------

    def _adopt(self, error: BaseException | None = None) -> None:
        """Make the group of the newest view, and have the same state as all its members."""
        self._beat.say(WAITING)
        formed = self.view.number if self.view is not None else -1
        if error is not None:
            self._link.tell("broken", view=formed, why=str(error))
        elif self.view is None:
            self._link.tell("ready")
        while True:
            view = self._link.await_view(formed)
            if view.rank_of(self._link.name) is None:
                formed, self._stays = view.number, False  # we were left out; perhaps we are let in again
                if self._link.drain:
                    if self.on_leave is not None:
                        self.on_leave()
                    raise SystemExit(0)
                self._link.tell("ready")
                continue
            try:
                self._form(view)
            except BROKEN as error:
                formed = view.number
                self._link.tell("broken", view=view.number, why=f"{type(error).__name__}: {error}")
            else:
                return

    def _form(self, view: View) -> None:
        rank = view.rank_of(self._link.name)
        assert rank is not None
        self.view = None
        self._healing.over()
        self._gathering.meet(view, rank)
        self._link.tell("grouped", view=view.number)
        self._rank = rank
        summaries = self._resume(view, rank, self._introduce(view))
        settlement = settle(summaries)
        if settlement.behind:
            self._heal(view, rank, settlement)
        self.view, self._change_due, self._first_in_view, self._stays = view, False, True, True
        self._settle_share(summaries, settlement)
        if self.source is not None:
            self.source.changed()

    def _settle_share(self, summaries: list[Summary], settlement: Settlement) -> None:
        """Go on with the step that is under way, if those who have the newest commit had begun it."""
        held = [
            frozenset() if rank in settlement.behind else summary.held
            for rank, summary in enumerate(summaries)
        ]
        if not any(held):
            self._forget_step()
            return
        assert self.source is not None
        if self.step is None:
            self.step = self.source.first(self.committed, self.epoch, self.start)
        self._deal(held)

    def _resume(self, view: View, rank: int, summaries: list[Summary]) -> list[Summary]:
        """Where a checkpoint is newer than what anyone brings, one reads it; the others are healed from that one."""
        while (reader := self.saver.reader(view, summaries)) is not None:
            image = self.saver.read(view) if rank == reader else None
            if image is not None:
                with self.saver.refusing():
                    self._put(image)
            summaries = self._introduce(view)
        return summaries

    def _introduce(self, view: View) -> list[Summary]:
        """Tell the others what we bring, and hear what they do."""
        assert self.source is not None
        ours = Card(
            Summary(
                committed=self.committed,
                epoch=self.epoch,
                start=self.start,
                held=frozenset(self._held),
                stays=self._stays,
            ),
            data=self.source.signature(),
            schema=state.schema(self.objects),
            saved=tuple(self.saver.card(self.objects, self.source.header(), stays=self._stays)),
        )
        cards = introduce(view, ours, self.source.micros_per_step)
        self.saver.meet([list(card.saved) for card in cards])
        return [card.summary for card in cards]

    def _heal(self, view: View, rank: int, settlement: Settlement) -> None:
        if rank in settlement.sources:
            self._healing.offer(view, self._image(on_host=True, settled=True))
        if rank in settlement.behind:
            self._healed = self._healing.receive(view, settlement)
            self._put(self._healed)
            self._beat.say(WAITING)
        self._healing.absent = frozenset(settlement.behind)
        if not settlement.base.stays:  # the run begins: all have something to compute
            self._meet_healed()

    def _meet_healed(self) -> None:
        dist.all_reduce(torch.zeros(1))
        self._healing.over()

    def await_healed(self) -> None:
        """No reduction follows: stand still until all members have the newest commit, if some are being healed."""
        while self._healing.absent:
            self._beat.say(WAITING)
            try:
                self._meet_healed()
            except BROKEN as error:
                self._adopt(error)

    @property
    def _position(self) -> tuple[int, int, int]:
        return self.committed, self.epoch, self.start

    def _image(self, *, on_host: bool = False, settled: bool = False) -> state.Image:
        """All that must not be lost, as of the last commit."""
        extra = {"position": self._position, "buffers": self._buffers.kept}
        return state.image_of(self.objects, extra, on_host=on_host, settled=settled)

    def _put(self, image: state.Image) -> None:
        """Take over a state; what we held of a step is void."""
        self._forget_step()
        extra = state.load(image, self.objects)
        self.committed, self.epoch, self.start = extra["position"]
        self._buffers.heal(extra["buffers"])

    def end_of_epoch(self) -> None:
        """The script is about to begin an epoch.

        If we were healed in the last step of the epoch before, what the script did at its end, stepping a scheduler
        say, came on top of a state that had it already.
        """
        if self._healed is not None and not self._held:
            extra = state.load(self._healed, self.objects)
            self._buffers.heal(extra["buffers"])
        self._healed = None

    def skip_to_epoch(self, epoch: int) -> None:
        """The script left an epoch before its end."""
        self.close_ticket()
        if self.epoch < epoch:
            self._forget_step()
            self.epoch, self.start = epoch, 0

    def finish(self) -> None:
        """Leave only when all members have the last commit: who fails now would have nobody to heal from."""
        self.close_ticket()
        with suppress(RunOver):
            while not self._all_are_here():
                pass
            assert self.view is not None
            self.saver.close(self.view, self._rank, self._position, self._image)
        self._link.tell("finished")
        self._beat.say(OUTSIDE)

    def _all_are_here(self) -> bool:
        """Meet all members; if one is missing, make a group with those who are left."""
        assert self.view is not None
        if self._link.lost_someone(self.view.number):
            self._adopt()
        try:
            dist.all_reduce(torch.zeros(1))
        except BROKEN as error:
            self._adopt(error)
            return False
        return True
