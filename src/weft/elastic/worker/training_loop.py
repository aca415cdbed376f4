"""The training loop of a worker: it computes its share of each step and commits the step with the others.

The life of a step: micro-batches are computed one by one; after the last one gradients are summed over all members;
`optimizer.step()` applies them; the step commits when the loop body has ended. What fails before that is done again
by those who are left, from what they hold: parameters have not changed, so nothing has to be undone. Where a loop body
has several backward passes, each is summed, and parameters may have changed between them: then the step is undone.

A loop body without a backward pass (`continue` after a loss that is not a number) leaves its micro-batch out. If it was
the last one of the member's share, the member goes through the body once more with another micro-batch that counts for
nothing, so that the script comes to `optimizer.step()` as on the other members.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import NoReturn

from weft.elastic.checkpoint.saver import Saver
from weft.elastic.history.records import StepRecord
from weft.elastic.membership.endings import NEXT
from weft.elastic.replica.gradients import all_reduce
from weft.elastic.replica.replica import InView, Replica, StepWork, Ticket
from weft.elastic.worker.ballot import Ballot, Place
from weft.elastic.worker.beat import COMPUTING, LOADING, OUTSIDE, WAITING, Beat
from weft.elastic.worker.group import BROKEN
from weft.elastic.worker.healing import Healing
from weft.elastic.worker.link import AgentLink, RunOver
from weft.elastic.worker.messages import LoopLeft, StepCommitted, WorkerFinished, WorkerPaused
from weft.elastic.worker.regrouping import Regrouping, count_all, meet_all
from weft.elastic.worker.usage import LoopUsage
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
        self.ended = False  # the run is over for this worker, or it leaves
        self._pause_due = False  # the run ends with the step that is to commit
        self.ticket: Ticket | None = None  # of the turn that the script's loop is in
        self._usage = LoopUsage(say=self._say, refuse=self._refuse, optimizers=replica.optimizers)
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
        while (work := replica.work or self._begin_step()) is not None:
            self.ticket = work.next_ticket(replica.source)
            if self.ticket is not None:
                return self.ticket
            self._commit_unused(work)
            if replica.epoch != epoch:
                return None
        self.await_healed()
        self._usage.end_epoch(replica.committed)
        replica.move_to_epoch(replica.epoch + 1)
        return None

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
        """Note that a backward pass of a micro-batch has ended; after the last one, sum the gradients."""
        work = ticket.work
        if work is not self.replica.work:  # given up while the script was in this turn
            return
        if ticket.weight:
            if ticket.micro not in work.held:
                self._beat.computed()
            work.held.add(ticket.micro)
            if ticket.micro == 0:
                self.replica.buffers.first_computed()
        if not work.todo:
            self._settle(work)

    def close_ticket(self) -> None:
        """End a turn of the loop: if the loop body applied a step, that step commits."""
        ticket, self.ticket = self.ticket, None
        passes = self.replica.gradients.end()
        work = self.replica.work
        if work is not None and work.ready:
            self._check_passes()
            self._commit(work)
        elif ticket is not None and ticket.work is work and not passes:
            work.skip(ticket)
            if ticket.weight and ticket.micro == 0:
                self.replica.buffers.first_skipped()

    def _check_passes(self) -> None:
        missing = self.replica.gradients.unreduced_passes
        if missing > 0:
            self._refuse(
                "every micro-batch must have as many backward passes as the others of its step, got "
                f"{missing} less in the last one"
            )

    def _commit_unused(self, work: StepWork) -> None:
        """Go through the reduction of a step for which the script had no use on this member.

        If no other member has either, the step is over without having been applied. If one has, this member lacks
        what was applied: it leaves the group, and is healed in the next one.
        """
        self.replica.gradients.begin(0, 0.0, last=True, then=lambda: None)
        self._settle(work)
        self.replica.gradients.end()
        if self.replica.work is not work or not work.ready:
            return
        if not self._usage.step_used:
            self._commit(work)
            return
        self.replica.forget_step()
        self._adopt(CollectiveError(f"{self._link.name} left out all of step {work.step.number}"))

    # -- the end of a step ------------------------------------------------------------------------

    def _settle(self, work: StepWork) -> None:
        """Sum the gradients over all members; repair what breaks, until it is done or there is more to compute."""
        self._beat.say(WAITING)
        self.replica.in_parts |= work.applied
        while True:
            try:
                self._reduce(work)
            except BROKEN as error:
                self.replica.gradients.give_up()
                self._undo(work)
                self._adopt(error)
                if self.replica.work is not work or work.todo:
                    work.ready = False
                    self.replica.gradients.not_last()
                    break
            else:
                self._healing.over()
                work.ready = True
                break
        self._beat.say(COMPUTING, lenient=self.place.first_step)

    def _undo(self, work: StepWork) -> None:
        """Give a step up in which an earlier backward pass was summed: other members may not have heard that sum."""
        if self.replica.gradients.passes and not self.replica.undo_step():
            print(
                f"weft: {self._link.name} ends: a member was lost after step {work.step.number} was applied in part, "
                "for the first time in this run",
                file=sys.stderr,
                flush=True,
            )
            self.ended = True
            raise SystemExit(1)

    def _reduce(self, work: StepWork) -> None:
        """Sum gradients, buffers and votes over all members; raises one of BROKEN."""
        if self._link.lost_someone(self.place.view.number):
            raise CollectiveError("a member is lost")
        gradients, buffers = self.replica.gradients, self.replica.buffers
        ballot = self._ballot(work)
        gradients.launch()
        works = [all_reduce(ballot.numbers)]
        flat = buffers.to_sum()
        works += [all_reduce(values) for values in flat.values()]
        gradients.wait()
        for pending in works:
            pending.wait()
        if (difference := ballot.differing(self.place.view)) is not None:
            self._refuse(difference)
        counted = ballot.held
        if set(counted) != {1.0}:
            raise AssertionError(
                f"every micro-batch of step {work.step.number} must count once, got {counted}; this is a bug in weft"
            )
        self.place.change_due = ballot.change_due
        self.saver.voted(*ballot.saving)
        self._pause_due = ballot.pausing and self.saver.agreed
        self._usage.step_used = ballot.used > 0
        buffers.take(flat)
        gradients.show(ballot.touched, scale=ballot.scale)

    def _ballot(self, work: StepWork) -> Ballot:
        """Fill in what this member tells the others with the gradients of a step."""
        replica, place = self.replica, self.place
        self.saver.asked |= self._link.pausing
        return Ballot.filled(
            Place(work.step.epoch, work.step.start, replica.gradients.passes),
            rank=place.rank,
            size=place.view.size,
            held=work.held,
            micros=replica.source.micros(work.step),
            most_micros=replica.source.micros_per_step,
            touched=replica.gradients.touched(),
            saving=self.saver.vote(replica.committed + 1, place.rank),
            pausing=self._link.pausing,
            newer=self._link.newer_than(place.view.number),
            skipped=work.skipped,
            used=self.ticket is not None,
        )

    def _say(self, what: str) -> None:
        """Tell the user something that all members have found, once."""
        if self.place.rank == 0:
            print(f"weft: {what}", file=sys.stderr, flush=True)

    def _refuse(self, why: str) -> NoReturn:
        """End the run for all: every member has found the same."""
        self.ended = True
        self._link.refuse(UsageError(why), for_all=True)

    def _commit(self, work: StepWork) -> None:
        """Make an applied step permanent, tell the agent, and have it saved if all members agreed to."""
        step, place = work.step, self.place
        self.replica.finish_step(work)
        self._usage.commit(applied=work.applied)
        self._beat.committed()
        record = StepRecord(
            step=step.number,
            epoch=step.epoch,
            start=step.start,
            stop=step.stop,
            view=place.view.number,
            parts={worker: tuple(micros) for worker, micros in work.parts.items()},
            digest=self.replica.source.digest(step),
            t=time.time(),
        )
        self._link.tell(StepCommitted(record, first=place.first_step))
        place.first_step = False
        self.saver.committed(place.view, place.rank, self.replica.position, self.replica.image)
        if self._pause_due:
            self._pause_due = False
            self._pause()

    def _pause(self) -> None:
        """End here if all members have saved the step that was just committed; go on if one was lost or could not."""
        self._beat.say(OUTSIDE)  # for as long as a disk takes
        saved = self.saver.is_saved(self.replica.committed)
        self._beat.say(WAITING)
        try:
            whole = count_all(saved) == self.place.view.size
        except BROKEN as error:
            self._adopt(error)
            return
        if not whole:
            self._link.pausing = False
            self._say(f"the run is not paused, as step {self.replica.committed} could not be saved")
            return
        self.ended = True
        self._link.tell(WorkerPaused(self.replica.committed))
        raise SystemExit(0)

    # -- changes of membership, and the ends of epochs and of the run ------------------------------

    def _adopt(self, error: BaseException | None = None) -> None:
        """Go on in the newest view. If the others are done, nothing is left to compute: the process ends."""
        try:
            self.place = self._regrouping.adopt(self.place, error)
        except RunOver:
            self.ended = True
            raise SystemExit(0) from None
        except SystemExit:
            self.ended = True
            raise

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

    def leave_early(self) -> None:
        """End a run whose loop the script has left: it is over if the scripts of all members have come to their end.

        To be called when the script has ended, as nobody can tell before whether an exception has ended its loop.
        """
        if self.ended:
            return
        self.close_ticket()
        self.ended = True
        self._beat.say(OUTSIDE)
        self._link.tell(LoopLeft(self.replica.committed))
        place = self.place
        if not self._link.await_end(place.view.number):
            print(
                f"weft: the others go on without {place.view.members[place.rank].worker}; {NEXT}",
                file=sys.stderr,
            )

    def finish(self) -> None:
        """Leave only when all members have the last commit: who fails now would have nobody to heal from."""
        self.close_ticket()
        self._beat.say(WAITING)
        with suppress(RunOver):
            while not self._all_are_here():
                pass
            self._beat.say(OUTSIDE)
            place, replica = self.place, self.replica
            self.saver.close(place.view, place.rank, replica.position, replica.image)
        self.ended = True
        self._link.tell(WorkerFinished())
        self._beat.say(OUTSIDE)

    def _all_are_here(self) -> bool:
        """Meet all members; if one is missing, make a group with the members that are left, and return False.

        Raises RunOver if the others are done already.
        """
        if self._link.lost_someone(self.place.view.number):
            self.place = self._regrouping.adopt(self.place)
        try:
            meet_all()
        except BROKEN as error:
            self.place = self._regrouping.adopt(self.place, error)
            return False
        return True
