"""A worker of an elastic run, in two phases: it registers what it trains, then it arrives and trains in a loop.

`Participant` is the first phase and holds what lasts through both; `TrainingLoop` is the second. Nothing of a view, a
step or a gradient exists before the worker has arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from weft.collectives.modes.tcp.mesh import own_address
from weft.collectives.settings import CollectiveSettings
from weft.elastic.checkpoint.saver import RefusedError, Saver
from weft.elastic.data.feed import SampleSource
from weft.elastic.membership.view import View
from weft.elastic.replica import state
from weft.elastic.replica.replica import Replica
from weft.elastic.worker import misuse
from weft.elastic.worker.beat import OUTSIDE, Beat
from weft.elastic.worker.group import ViewGroup
from weft.elastic.worker.healing import Healing
from weft.elastic.worker.link import AgentLink, RunOver
from weft.elastic.worker.messages import DataHeader, WorkerHello
from weft.elastic.worker.regrouping import Regrouping
from weft.elastic.worker.training_loop import TrainingLoop
from weft.errors import UsageError


class Participant:
    """One worker: its link to the agent, what its script registers, and, once it has arrived, its training loop."""

    def __init__(
        self,
        link: AgentLink,
        beat: Beat,
        *,
        settings: CollectiveSettings,
        secret: str,
        reproducible: bool = False,
    ) -> None:
        address = own_address(settings.launcher)
        self._link, self._beat, self._reproducible = link, beat, reproducible
        self._healing = Healing(link, beat, address, secret)
        self._group = ViewGroup(link, address, secret, settings)
        self._source: SampleSource | None = None
        self._loop: TrainingLoop | None = None  # from the arrival on
        self.objects: dict[str, Any] = {}
        self.on_leave: Callable[[], object] | None = None
        self.saver = Saver(link, secret)
        link.on_urgent = self._group.abort_outdated
        link.tell(WorkerHello(self.store_port, self.heal_port))

    @property
    def name(self) -> str:
        return self._link.name

    @property
    def store_port(self) -> int:
        return self._group.port

    @property
    def heal_port(self) -> int:
        return self._healing.port

    # -- registering ------------------------------------------------------------------------------

    def attend(self, source: SampleSource) -> None:
        """Take the samples from this source."""
        self._source = source
        self._link.tell(DataHeader(source.header()))

    def register(self, objects: Mapping[str, Any]) -> None:
        """Keep these objects through every change of membership."""
        state.check(objects)
        self.objects.update(objects)

    def arrive(self) -> TrainingLoop:
        """Become a member of the run, at the place where the others are; the first call only does something."""
        if self._loop is None:
            if self._source is None or not self.objects:
                raise UsageError(
                    "run.loader and run.register must come before run.epochs, got neither or one"
                )
            misuse.watch_optimizers(self.objects)
            self._loop = self._arrive(Replica(self.objects, self._source, reproducible=self._reproducible))
        return self._loop

    def _arrive(self, replica: Replica) -> TrainingLoop:
        link, beat, healing, saver = self._link, self._beat, self._healing, self.saver
        regrouping = Regrouping(
            replica,
            link=link,
            beat=beat,
            group=self._group,
            healing=healing,
            saver=saver,
            on_leave=self.on_leave,
        )
        try:
            return TrainingLoop(replica, regrouping, link=link, beat=beat, healing=healing, saver=saver)
        except RunOver:
            raise SystemExit(0) from None
        except UsageError as error:
            link.refuse(error, for_all=isinstance(error, RefusedError))

    # -- training ---------------------------------------------------------------------------------

    @property
    def loop(self) -> TrainingLoop:
        """The training loop of a worker that has arrived."""
        if self._loop is None:
            raise UsageError("a loader must be gone through inside of run.epochs, got one before it")
        return self._loop

    @property
    def view(self) -> View | None:
        """The view this worker is in; None before its arrival."""
        return self._loop.place.view if self._loop is not None else None

    @property
    def rank(self) -> int:
        return self._loop.place.rank if self._loop is not None else 0

    @property
    def committed(self) -> int:
        """Steps that are permanent."""
        return self._loop.replica.committed if self._loop is not None else 0

    @property
    def finished(self) -> bool:
        """Return whether the run is over for this worker, or it has left."""
        return self._loop is not None and self._loop.ended

    @property
    def in_turn(self) -> bool:
        """Return whether the script is in the body of its loop."""
        return self._loop is not None and self._loop.ticket is not None

    @property
    def ready(self) -> bool:
        """Return whether the gradients are summed, ready for the optimizer."""
        work = self._loop.replica.work if self._loop is not None else None
        return work is not None and work.ready

    @property
    def applied(self) -> bool:
        """Return whether the optimizer has applied the summed gradients."""
        work = self._loop.replica.work if self._loop is not None else None
        return work is not None and work.applied

    def mark_applied(self) -> None:
        """Note that the optimizer has taken the sum of a step that is `ready`."""
        work = self.loop.replica.work
        if work is not None:
            work.applied = True

    def pause(self) -> None:
        """Note that the script does something else than its loop: no progress is expected meanwhile."""
        self._beat.say(OUTSIDE)

    def resume(self) -> None:
        """Note that the script goes on with the body of its loop."""
        self._beat.begin()
