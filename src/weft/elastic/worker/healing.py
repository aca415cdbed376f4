"""A worker's part in healing: it offers the newest commit to those who lack it, or gets it from those who have it.

Nobody stands still for that. Until the next reduction nothing changes that a commit consists of: the sources compute
the step that follows, and their parameters are sent meanwhile; who is being healed gets no share of that step, and
comes to its reduction when it is whole. Where no reduction follows, the members meet before they go on.
"""

from __future__ import annotations

from weft.elastic.data.shares import Settlement
from weft.elastic.membership.view import View
from weft.elastic.replica.state import StateImage
from weft.elastic.replica.state_transfer import StateServer, StateSource, fetch
from weft.elastic.worker.beat import HEALING, Beat
from weft.elastic.worker.link import AgentLink
from weft.elastic.worker.messages import WorkerHealed


class Healing:
    """The healing in the present view: what this member offers, and which members are being healed."""

    def __init__(self, link: AgentLink, beat: Beat, address: str, secret: str) -> None:
        self._link, self._beat, self._secret = link, beat, secret
        self._server = StateServer(address, secret)
        self.absent: frozenset[int] = frozenset()  # ranks that are being healed, while the others go on

    @property
    def port(self) -> int:
        """The port that this worker's server listens at."""
        return self._server.port

    def offer(self, view: View, image: StateImage) -> None:
        """Let the members of a view have this member's state."""
        self._server.publish(view.number, image)

    def receive(self, view: View, settlement: Settlement) -> StateImage:
        """Get the state of the members that have the newest commit, and tell the agent."""
        members = [view.members[source] for source in settlement.sources]
        self._beat.say(HEALING)
        healed = fetch(
            view.number,
            [StateSource(member.worker, member.address, member.heal_port) for member in members],
            self._secret,
            cancelled=lambda: self._link.lost_someone(view.number),
            on_slice=lambda: self._beat.say(HEALING),
        )
        self._link.tell(
            WorkerHealed(
                view=view.number,
                step=settlement.base.committed,
                bytes=healed.image.nbytes,
                seconds=round(healed.seconds, 4),
                sources=tuple(healed.sources),
            )
        )
        return healed.image

    def over(self) -> None:
        """End the healing: all are whole, or the view is given up. What was offered may change from now on."""
        self._server.withdraw()
        self.absent = frozenset()
