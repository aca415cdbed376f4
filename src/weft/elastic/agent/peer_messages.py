"""Messages between agents, beside those of the council: their statuses, and verdicts of the leader."""

from __future__ import annotations

from weft.elastic.membership.council_messages import COUNCIL_MESSAGES, CouncilMessage
from weft.elastic.membership.reports import AgentStatus
from weft.messages import Decoder, Message


class PeerMessage(Message, frozen=True, tag_field="kind"):
    """A message from one agent to another."""


class StatusBeat(PeerMessage, frozen=True, tag="status"):
    """The status of an agent, with the clocks from which the receiver learns the round trip."""

    status: AgentStatus
    stamp: float  # monotonic seconds of the sender, now
    echoes: dict[str, tuple[float, float]]  # by agent: its last stamp, and the seconds since that came


class EvictWorker(PeerMessage, frozen=True, tag="evict"):
    """The leader has found a worker of the receiving agent to be too slow."""

    worker: str


AnyPeerMessage = PeerMessage | CouncilMessage
PEER_DECODER: Decoder[Message] = Decoder(StatusBeat, EvictWorker, *COUNCIL_MESSAGES)
