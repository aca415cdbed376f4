"""One member's replica of the training: the registered objects, the position reached, and the step under way.

All members hold the same registered state as of the last commit. What differs between them is the step under way: a
member keeps the micro-batches it has computed (`StepWork`) until that step commits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from weft.elastic.data.feed import SampleSource
from weft.elastic.data.order import TrainingStep
from weft.elastic.data.shares import MemberSummary, deal
from weft.elastic.membership.view import View
from weft.elastic.replica import state
from weft.elastic.replica.buffers import Buffers
from weft.elastic.replica.gradients import Gradients, all_reduce


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
    skipped: float = (
        0.0  # part of the step's samples that this member left out: turns without a backward pass
    )
    unusable: set[int] = field(
        default_factory=set
    )  # micro-batches with which the script did no backward pass
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

    def next_ticket(self, source: SampleSource) -> Ticket | None:
        """Take the next micro-batch; a member with nothing to do goes through the loop body with weight 0.

        It does so with a micro-batch that the script has not left out, so that it comes to apply the step; None if
        there is none.
        """
        if not self.todo:
            usable = (micro for micro in range(source.micros(self.step)) if micro not in self.unusable)
            micro = next(usable, None)
            return Ticket(self, micro, 0.0, last=True) if micro is not None else None
        micro = self.todo.popleft()
        weight = source.micro_size(self.step, micro) / self.step.size
        return Ticket(self, micro, weight, last=not self.todo)

    def skip(self, ticket: Ticket) -> None:
        """Note that a turn of the loop had no backward pass: its samples count for nothing."""
        self.unusable.add(ticket.micro)
        if ticket.weight:
            self.held.add(ticket.micro)
            self.skipped += ticket.weight


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
        # An average of weights is state like any other: no gradient or batch changes it.
        modules = [
            value
            for value in objects.values()
            if isinstance(value, nn.Module) and not isinstance(value, AveragedModel)
        ]
        parameters = dict.fromkeys(parameter for module in modules for parameter in module.parameters())
        rows = source.micros_per_step if reproducible else 1
        self.objects, self.source = objects, source
        self.gradients = Gradients(parameters, all_reduce, rows=rows)
        self.optimizers = sum(isinstance(value, torch.optim.Optimizer) for value in objects.values())
        # A step is applied by several optimizers, or several times: a member may be lost in between.
        self.in_parts = self.optimizers > 1
        self._copy: state.StateImage | None = None  # of the last commit, while a step is applied in parts
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
        """Return what this member brings to a new view; `stays`: it was in the view before."""
        held = frozenset(self.work.held if self.work is not None else ())
        return MemberSummary(
            committed=self.committed, epoch=self.epoch, start=self.start, held=held, stays=stays
        )

    def begin_step(self) -> StepWork | None:
        """Begin the step at the present position; None at the end of the epoch."""
        self.gradients.follow_frozen()
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
        self._copy = None
        self.gradients.clear()
        self.buffers.forget_step()
        self.work = None

    def move_to_epoch(self, epoch: int) -> None:
        self.epoch, self.start = epoch, 0

    def image(self, *, on_host: bool = False, settled: bool = False) -> state.StateImage:
        """All that must not be lost, as of the last commit; the options are those of `state.image_of`."""
        trained = [parameter.requires_grad for parameter in self.gradients.parameters]
        extra = {"position": self.position, "buffers": self.buffers.kept, "trained": trained}
        return state.image_of(self.objects, extra, on_host=on_host, settled=settled)

    def load(self, image: state.StateImage) -> None:
        """Take over another member's state; what this member held of a step is void."""
        self.forget_step()
        self.committed, self.epoch, self.start = self._load(image)["position"]

    def keep_copy(self) -> None:
        """Copy the state of the last commit before a step is applied, if it may have to be undone."""
        if not self.in_parts or self.work is None or self.work.applied:
            return
        image = self.image()
        self._copy = replace(image, tensors=tuple(tensor.clone() for tensor in image.tensors))

    def undo_step(self) -> bool:
        """Go back to the last commit from a step that is applied in part; False if there is no copy of that state."""
        copy, applied = self._copy, self.work is not None and self.work.applied
        self.forget_step()
        if applied and copy is not None:
            self._load(copy)
        return not applied or copy is not None

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
        # A script that unfreezes parameters at some epoch does not do so on a worker that comes later.
        for parameter, trained in zip(self.gradients.parameters, extra.get("trained", ()), strict=False):
            parameter.requires_grad_(trained)
        return extra
