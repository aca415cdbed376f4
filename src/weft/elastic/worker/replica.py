"""One member's replica of the training: the registered objects, the position reached, and the step under way.

All members hold the same registered state as of the last commit. What differs between them is the step under way: a
member keeps the micro-batches it has computed (`StepWork`) until that step commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from weft.elastic.data.feed import SampleSource
from weft.elastic.data.order import TrainingStep
from weft.elastic.data.shares import MemberSummary, deal
from weft.elastic.membership.view import View
from weft.elastic.worker import state
from weft.elastic.worker.buffers import Buffers
from weft.elastic.worker.gradients import Gradients, all_reduce


@dataclass
class InView:
    """This worker's place in a view whose process group stands; a change of membership makes a new one."""

    view: View
    rank: int
    change_due: bool = False  # all members agreed, in the last reduction, to leave for a newer view
    first_step: bool = True  # no step has been committed in this view yet


@dataclass
class StepWork:
    """The work on one step: the micro-batches this member has computed, those it still has to, and everyone's parts.

    The object lives from the beginning of the step until it commits or is given up, also through changes of
    membership: the same object after a change means that the step goes on.
    """

    step: TrainingStep
    held: set[int] = field(default_factory=set)  # micro-batches this member has computed
    todo: deque[int] = field(default_factory=deque)  # micro-batches this member still has to compute
    parts: dict[str, list[int]] = field(default_factory=dict)  # worker: all that it will have computed
    ready: bool = False  # `.grad` shows the sum over all members
    applied: bool = False  # the optimizer has stepped with that sum

    def deal(
        self, place: InView, absent: Collection[int], micros: int, held: Sequence[frozenset[int]]
    ) -> None:
        """Divide what is left of the step among the members of a view, less the ranks that are being healed.

        `held` has, by rank, the micro-batches that members have computed; `micros` is how many the step has.
        """
        members = place.view.members
        weights = [0.0 if rank in absent else member.weight for rank, member in enumerate(members)]
        shares = deal(micros, weights, held)
        self.todo = deque(shares[place.rank])
        self.parts = {
            member.worker: sorted(own | set(share))
            for member, own, share in zip(members, held, shares, strict=True)
        }

    def next_ticket(self, source: SampleSource) -> Ticket:
        """Take the next micro-batch; a member with nothing to do goes through the loop body with weight 0."""
        if not self.todo:
            return Ticket(self, 0, 0.0, last=True)
        micro = self.todo.popleft()
        weight = source.micro_size(self.step, micro) / self.step.size
        return Ticket(self, micro, weight, last=not self.todo)


@dataclass(frozen=True)
class Ticket:
    """One micro-batch that this member computes in one turn of the script's loop."""

    work: StepWork
    micro: int
    weight: float  # the micro-batch's part of the step's samples; 0: the turn computes nothing that counts
    last: bool  # no other micro-batch of this member's share follows

    @property
    def step(self) -> TrainingStep:
        return self.work.step


class Replica:
    """The state that one member trains: objects, gradients, buffers, position, and the work on the current step."""

    def __init__(self, objects: Mapping[str, Any], source: SampleSource, *, reproducible: bool) -> None:
        modules = [value for value in objects.values() if isinstance(value, nn.Module)]
        parameters = dict.fromkeys(parameter for module in modules for parameter in module.parameters())
        rows = source.micros_per_step if reproducible else 1
        self.objects, self.source = objects, source
        self.gradients = Gradients(parameters, all_reduce, rows=rows)
        self.buffers = Buffers(modules)
        self.committed = self.epoch = self.start = 0  # steps of the run; epoch, and the next position in it
        self.work: StepWork | None = None
        self.healed: state.StateImage | None = (
            None  # the image this member was healed with since its last commit
        )

    @property
    def position(self) -> tuple[int, int, int]:
        """Committed steps, epoch, and the next position in the epoch."""
        return self.committed, self.epoch, self.start

    def summary(self, *, stays: bool) -> MemberSummary:
        """What this member brings to a new view; `stays`: it was in the view before."""
        held = frozenset(self.work.held if self.work is not None else ())
        return MemberSummary(
            committed=self.committed, epoch=self.epoch, start=self.start, held=held, stays=stays
        )

    def begin_step(self) -> StepWork | None:
        """Begin the step at the present position; None at the end of the epoch."""
        step = self.source.first(*self.position)
        self.work = StepWork(step) if step is not None else None
        return self.work

    def finish_step(self, work: StepWork) -> None:
        """Move the position past a step that has been applied; nothing of the step is kept."""
        self.buffers.commit()
        self.committed, self.start = self.committed + 1, work.step.stop
        self.forget_step()
        self.healed = None

    def forget_step(self) -> None:
        """Drop what belongs to the present step only."""
        self.gradients.clear()
        self.buffers.forget_step()
        self.work = None

    def move_to_epoch(self, epoch: int) -> None:
        self.epoch, self.start = epoch, 0

    def image(self, *, on_host: bool = False, settled: bool = False) -> state.StateImage:
        """All that must not be lost, as of the last commit; the options are those of `state.image_of`."""
        extra = {"position": self.position, "buffers": self.buffers.kept}
        return state.image_of(self.objects, extra, on_host=on_host, settled=settled)

    def load(self, image: state.StateImage) -> None:
        """Take over another member's state; what this member held of a step is void."""
        self.forget_step()
        self.committed, self.epoch, self.start = self._load(image)["position"]

    def reload_healed(self) -> None:
        """Load the image of a healing once more, if no micro-batch has been computed since.

        If this member was healed in the last step of an epoch, what the script did at the end of that epoch, stepping
        a scheduler say, came on top of a state that had it already.
        """
        if self.healed is not None and not (self.work is not None and self.work.held):
            self._load(self.healed)
        self.healed = None

    def _load(self, image: state.StateImage) -> dict[str, Any]:
        extra: dict[str, Any] = state.load(image, self.objects)
        self.buffers.heal(extra["buffers"])
        return extra
