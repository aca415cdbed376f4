"""The training loop of a worker: it computes its share of each step and commits the step with the others.

The life of a step: micro-batches are computed one by one; after the last one gradients are summed over all members;
`optimizer.step()` applies them; the step commits when the loop body has ended. What fails before that is done again
by those who are left, from what they hold: parameters have not changed, so nothing has to be undone.
"""

from __future__ import annotations

import time
from contextlib import suppress

import torch

from weft.elastic.checkpoint.saver import Saver
from weft.elastic.worker.beat import COMPUTING, LOADING, OUTSIDE, WAITING, Beat
from weft.elastic.worker.gradients import all_reduce
from weft.elastic.worker.group import BROKEN
from weft.elastic.worker.healing import Healing
from weft.elastic.worker.link import AgentLink, RunOver
from weft.elastic.worker.regrouping import Regrouping, meet_all
from weft.elastic.worker.replica import InView, Replica, StepWork, Ticket
from weft.errors import CollectiveError, UsageError


class TrainingLoop:
    """The phase of a worker from its first view on: it always has a replica and a place in a view.

    A turn of the script's loop is `next_ticket`, `begin`, the loop body, and `close_ticket` with the next turn.
    """

    def __init__(
        self,
        replica: Replica,
        regrouping: Regrouping,
        *,
        link: AgentLink,
        beat: Beat,
        healing: Healing,
        saver: Saver,
    ) -> None:
        """Become a member, at the place where the others are. Raises RunOver if there are no others any more."""
        self.replica, self.saver = replica, saver
        self._regrouping, self._healing = regrouping, healing
        self._link, self._beat = link, beat
        self.ticket: Ticket | None = None  # of the turn that the script's loop is in
        self.place: InView = regrouping.adopt(None)
        replica.healed = None

    # -- a turn of the loop -----------------------------------------------------------------------

    def next_ticket(self, epoch: int) -> Ticket | None:
        """End the turn before, and return the next micro-batch to compute; None at the end of this epoch."""
        self.close_ticket()
        replica = self.replica
        if self.place.change_due or self._link.lost_someone(self.place.view.number):
            self._adopt()
        self._beat.say(LOADING, lenient=replica.start == 0)
        if replica.epoch != epoch:
            return None
        work = replica.work or self._begin_step()
        if work is None:
            self.await_healed()
            replica.move_to_epoch(replica.epoch + 1)
            return None
        self.ticket = work.next_ticket(replica.source)
        return self.ticket

    def _begin_step(self) -> StepWork | None:
        work = self.replica.begin_step()
        if work is not None:
            nothing_held: list[frozenset[int]] = [frozenset()] * self.place.view.size
            micros = self.replica.source.micros(work.step)
            work.deal(self.place, self._healing.absent, micros, nothing_held)
        return work

    def begin(self, ticket: Ticket) -> None:
        """Begin to compute a micro-batch that has been loaded."""
        self.replica.buffers.restore()
        self.replica.gradients.begin(
            ticket.micro, ticket.weight, last=ticket.last, then=lambda: self._computed(ticket)
        )
        self._beat.begin()

    def _computed(self, ticket: Ticket) -> None:
        """Note that the backward pass of a micro-batch has ended; after the last one, sum the gradients."""
        if ticket.weight:
            self._beat.computed()
            ticket.work.held.add(ticket.micro)
            if ticket.micro == 0:
                self.replica.buffers.first_computed()
        if ticket.last:
            self._settle(ticket.work)

    def close_ticket(self) -> None:
        """End a turn of the loop: if the loop body applied a step, that step commits."""
        ticket, self.ticket = self.ticket, None
        self.replica.gradients.end()
        work = self.replica.work
        if work is not None and work.ready:
            self._commit(work)
            return
        if ticket is None or not ticket.weight or ticket.work is not work:
            return
        if ticket.micro not in ticket.work.held:
            raise UsageError(
                "every micro-batch must be followed by loss.backward(), got a loop body without it; a batch can be "
                "left out by multiplying its loss by 0"
            )

    # -- the end of a step ------------------------------------------------------------------------

    def _settle(self, work: StepWork) -> None:
        """Sum the gradients over all members; repair what breaks, until it is done or there is more to compute."""
        self._beat.say(WAITING)
        while True:
            try:
                self._reduce(work)
            except BROKEN as error:
                self.replica.gradients.give_up()
                self._adopt(error)
                if self.replica.work is not work or work.todo:
                    break
            else:
                self._healing.over()
                work.ready = True
                break
        self._beat.say(COMPUTING, lenient=self.place.first_step)

    def _reduce(self, work: StepWork) -> None:
        """Sum gradients, buffers and votes over all members; raises one of BROKEN.

        The votes are one row of numbers: who computed which micro-batch, whether a newer view is known, what savers
        want, and which parameters have gradients.
        """
        if self._link.lost_someone(self.place.view.number):
            raise CollectiveError("a member is lost")
        gradients, buffers = self.replica.gradients, self.replica.buffers
        micros = self.replica.source.micros(work.step)
        votes = torch.zeros(micros + 3 + len(gradients.parameters), dtype=torch.float64)
        votes[[*work.held]] = 1.0
        votes[micros] = float(self._link.newer_than(self.place.view.number))
        votes[micros + 1 : micros + 3] = torch.tensor(
            self.saver.vote(self.replica.committed + 1, self.place.rank)
        )
        votes[micros + 3 :] = gradients.touched()
        gradients.launch()
        works = [all_reduce(votes)]
        flat = buffers.to_sum()
        works += [all_reduce(values) for values in flat.values()]
        gradients.wait()
        for pending in works:
            pending.wait()
        counted = votes[:micros].tolist()
        if set(counted) != {1.0}:
            raise AssertionError(
                f"every micro-batch of step {work.step.number} must count once, got {counted}; this is a bug in weft"
            )
        self.place.change_due = bool(votes[micros])
        self.saver.voted(float(votes[micros + 1]), float(votes[micros + 2]))
        buffers.take(flat)
        gradients.show(votes[micros + 3 :].tolist())

    def _commit(self, work: StepWork) -> None:
        """Make an applied step permanent, tell the agent, and have it saved if all members agreed to."""
        step, place = work.step, self.place
        self.replica.finish_step(work)
        self._beat.committed()
        record = {
            "step": step.number,
            "epoch": step.epoch,
            "start": step.start,
            "stop": step.stop,
            "view": place.view.number,
            "parts": work.parts,
            "digest": self.replica.source.digest(step),
            "t": time.time(),
        }
        self._link.tell("commit", record=record, first=place.first_step)
        place.first_step = False
        self.saver.committed(place.view, place.rank, self.replica.position, self.replica.image)

    # -- changes of membership, and the ends of epochs and of the run ------------------------------

    def _adopt(self, error: BaseException | None = None) -> None:
        self.place = self._regrouping.adopt(self.place, error)

    def await_healed(self) -> None:
        """Stand still until all members have the newest commit, where no reduction follows that would wait for it."""
        while self._healing.absent:
            self._beat.say(WAITING)
            try:
                self._regrouping.meet_healed()
            except BROKEN as error:
                self._adopt(error)

    def skip_to_epoch(self, epoch: int) -> None:
        """Go on with this epoch, if the script left the one before it early."""
        self.close_ticket()
        if self.replica.epoch < epoch:
            self.replica.forget_step()
            self.replica.move_to_epoch(epoch)

    def finish(self) -> None:
        """Leave only when all members have the last commit: who fails now would have nobody to heal from."""
        self.close_ticket()
        with suppress(RunOver):
            while not self._all_are_here():
                pass
            place, replica = self.place, self.replica
            self.saver.close(place.view, place.rank, replica.position, replica.image)
        self._link.tell("finished")
        self._beat.say(OUTSIDE)

    def _all_are_here(self) -> bool:
        """Meet all members; if one is missing, make a group with those who are left, and return False."""
        if self._link.lost_someone(self.place.view.number):
            self._adopt()
        try:
            meet_all()
        except BROKEN as error:
            self._adopt(error)
            return False
        return True
