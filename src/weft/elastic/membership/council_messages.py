"""Messages of the council: what voters ask of each other, how they vote, and what was decided."""

from __future__ import annotations

from dataclasses import dataclass

from weft.elastic.membership.view import View
from weft.messages import Message

Ballot = tuple[int, int]  # round, index of the voter


@dataclass(frozen=True)
class Proposal:
    """A view that was proposed as the next one, and the ballot of the proposal."""

    ballot: Ballot
    value: View


class CouncilMessage(Message, frozen=True, tag_field="kind"):
    """A message between two agents about the next view."""


class ViewMessage(CouncilMessage, frozen=True):
    """A message that brings the present view of its sender along, for agents that do not know it yet."""

    view: View


class CouncilHello(ViewMessage, frozen=True, tag="hello"):
    """The first message of a connection, after the request that its sender has under way."""


class ViewDecided(ViewMessage, frozen=True, tag="decided"):
    """The view is decided."""


class Prepare(ViewMessage, frozen=True, tag="prepare"):
    """A request for a promise to accept nothing below this ballot."""

    ballot: Ballot


class Propose(ViewMessage, frozen=True, tag="propose"):
    """A request to accept this view as the next one."""

    ballot: Ballot
    value: View


class CouncilVote(CouncilMessage, frozen=True):
    """An answer to a request with this ballot, on the view after view `number`."""

    number: int
    ballot: Ballot


class Promise(CouncilVote, frozen=True, tag="promise"):
    """The voter accepts nothing below this ballot; `heard` is the proposal of the highest ballot that it knows."""

    heard: Proposal | None = None


class Accept(CouncilVote, frozen=True, tag="accept"):
    """The voter accepts the proposal of this ballot."""


class Outbid(CouncilVote, frozen=True, tag="outbid"):
    """The voter has promised this higher ballot."""


COUNCIL_MESSAGES = (CouncilHello, ViewDecided, Prepare, Propose, Promise, Accept, Outbid)
