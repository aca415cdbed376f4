"""The council: the voters of a view agree on the view that follows it.

A chain of single-decree Paxos instances: instance n decides view n + 1, its acceptors are the voters of
view n. Pure: calls go in, actions come out, to be carried out in their order. Nothing is written to disk,
because a voter that crashed never comes back under its name.

Enough votes are: a majority; or one half, if the view's first voter is in it; or all voters but those the
proposer knows to be gone. Why no two proposers decide differently:

- As in Paxos. A proposer that may propose at ballot b has asked a quorum, and takes over the proposal of
  the highest ballot any of them has heard. Quorums of the first two kinds share a voter, and no voter
  accepts below what it promised. So every proposal above a decided one has the decided value.
- The dead. Requests go to all voters before any vote is counted, and `gone` counts only if nothing the
  dead one sent here was lost: the link is whole. So whoever counts without a dead voter has heard each
  proposal that one could have decided, even if too late to accept it (`_hear`), and each ballot it could
  have prepared, and by that its own lower ballot is over (`_promise`). What the dead accepted for others
  does not matter: those others live and are asked, or are gone and were heard themselves.
  If each side counted without the other, each would have voted after the other's death.
- Steps. A voter is fenced from its first vote until it knows the next view. One whose workers take part
  must be in the quorum (or they are all gone), so the old view can complete no step once the next exists.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from weft.elastic.membership.council_messages import (
    Accept,
    Ballot,
    CouncilHello,
    CouncilMessage,
    CouncilVote,
    Outbid,
    Prepare,
    Promise,
    Proposal,
    Propose,
    ViewDecided,
    ViewMessage,
)
from weft.elastic.membership.view import View

# The ballot of the first voter, once, without asking: no voter can have promised or proposed anything below it.
FIRST: Ballot = (0, 0)


@dataclass(frozen=True)
class Send:
    """Send a message to another agent; without a connection it is dropped, and `met` repeats what matters."""

    to: str
    message: CouncilMessage


@dataclass(frozen=True)
class Decided:
    """Adopt a view that is decided; given once for each view that this council learns of, in rising numbers."""

    view: View


Action = Send | Decided


def is_quorum(voters: Sequence[str], votes: Set[str], gone: Set[str] = frozenset()) -> bool:
    """Return whether these votes are enough, where the voters in `gone` are known to be dead."""
    given = votes & set(voters)
    if 2 * len(given) == len(voters) and voters[0] in given:
        return bool(given)
    return 2 * len(given) > len(voters) or (bool(given) and given | gone >= set(voters))


@dataclass
class _Try:
    """A ballot of this agent while it lasts: it asks for promises first, for votes once it has a value."""

    ballot: Ballot
    value: View | None
    votes: set[str] = field(default_factory=set)


class Council:
    """One agent's part in the agreement. A voter decides with the others, any other agent learns.

    `view` is the latest decided view that the agent knows. The caller brings messages in the order sent, one
    connection per pair of agents at a time, and says when a connection begins (`met`) and breaks (`lost`).
    """

    def __init__(self, me: str, view: View) -> None:
        self.me = me
        self.view = view
        self._whole: set[str] = set()  # peers of whom no message was lost since their hello
        self._gone: set[str] = set()
        self._forget()

    def _forget(self) -> None:
        """Begin the instance of the present view."""
        self._promised = FIRST
        self._heard: Proposal | None = None  # of the highest ballot; accepted, unless promised is higher
        self._highest = FIRST  # ballot that any voter used, as far as is known here
        self._wish: View | None = None  # the view that was proposed here
        self._try: _Try | None = None

    @property
    def fenced(self) -> bool:
        """Return whether this agent voted on a next view that it does not know yet: the old one may commit no step."""
        return self._promised > FIRST or self._heard is not None

    @property
    def outbid(self) -> bool:
        """Return whether the view that was proposed here stands no chance before the next `again`."""
        return self._wish is not None and (self._try is None or self._highest > self._try.ballot)

    def propose(self, value: View) -> list[Action]:
        """Try to have this view follow the present one; only a voter of the present one can."""
        if value.number != self.view.number + 1:
            raise ValueError(f"the view after {self.view.number} must be next, got number {value.number}")
        self._wish = value
        return self.again()

    def again(self) -> list[Action]:
        """Try once more, with a higher ballot; nothing is to do if what was proposed is settled."""
        if self._wish is None or self.me not in self.view.voters:
            return []
        index = self.view.voters.index(self.me)
        if index == 0 and not self.fenced:
            return self._issue(FIRST, self._wish)
        return self._begin(_Try((self._highest[0] + 1, index), None))

    def met(self, peer: str) -> list[Action]:
        """Begin a new connection to this peer; to be called before anything is received over it."""
        self._whole.discard(peer)
        # The try goes first: with the hello, the peer may rely on having heard all.
        request = [self._request(self._try)] if self._try and peer in self.view.voters else []
        return [Send(peer, message) for message in [*request, CouncilHello(self.view)]]

    def lost(self, peer: str) -> list[Action]:
        """Note that the connection broke and messages may be lost: a later death of the peer proves nothing."""
        self._whole.discard(peer)
        return []

    def gone(self, voter: str) -> list[Action]:
        """Take in the proof that this voter is dead: its process ended, and all that it sent here was received.

        Silence is no proof, and neither is a death behind a broken connection: such calls change nothing.
        """
        if voter in self._whole:
            self._gone.add(voter)
        return self._count()

    def receive(self, sender: str, message: CouncilMessage) -> list[Action]:
        """Take in a message. A sender that asks about an older view is told of the present one."""
        if isinstance(message, CouncilVote):
            return self._count_vote(sender, message) if message.number == self.view.number else []
        assert isinstance(message, ViewMessage)
        learned = self._learn(message.view)
        if isinstance(message, CouncilHello):
            self._whole.add(sender)
        if not isinstance(message, ViewDecided) and message.view.number < self.view.number:
            return [Send(sender, ViewDecided(self.view))]
        if isinstance(message, (Prepare, Propose)) and {self.me, sender} <= set(self.view.voters):
            return [*learned, Send(sender, self._vote(message))]
        return learned

    def _vote(self, request: Prepare | Propose) -> CouncilVote:
        """Vote for a request, or say what stands against it."""
        number, ballot = self.view.number, request.ballot
        if isinstance(request, Propose):
            self._hear(Proposal(ballot, request.value))
        if ballot < self._promised:
            return Outbid(number, self._promised)
        self._promise(ballot)
        return (
            Accept(number, ballot) if isinstance(request, Propose) else Promise(number, ballot, self._heard)
        )

    def _count_vote(self, sender: str, vote: CouncilVote) -> list[Action]:
        """Count a vote for the ballot of this agent, or learn that there is a higher one."""
        self._highest = max(self._highest, vote.ballot)
        attempt = self._try
        if attempt is None or attempt.ballot != vote.ballot or sender not in self.view.voters:
            return []
        if not isinstance(vote, Accept if attempt.value else Promise):
            return []
        if isinstance(vote, Promise) and vote.heard is not None:
            self._hear(vote.heard)
        attempt.votes.add(sender)
        return self._count()

    def _hear(self, proposal: Proposal) -> None:
        if self._heard is None or proposal.ballot > self._heard.ballot:
            self._heard = proposal

    def _promise(self, ballot: Ballot) -> None:
        self._promised = ballot
        self._highest = max(self._highest, ballot)
        if self._try and self._try.ballot < ballot:
            self._try = None  # this agent's ballot is over, even if votes still come

    def _begin(self, attempt: _Try) -> list[Action]:
        """Ask all other voters first, then vote: a quorum may be complete with that."""
        self._promise(attempt.ballot)
        self._try = attempt
        attempt.votes.add(self.me)
        asked: list[Action] = [Send(v, self._request(attempt)) for v in self.view.voters if v != self.me]
        return asked + self._count()

    def _issue(self, ballot: Ballot, value: View) -> list[Action]:
        self._hear(Proposal(ballot, value))
        return self._begin(_Try(ballot, value))

    def _count(self) -> list[Action]:
        """Go on if the votes are enough."""
        attempt = self._try
        if attempt is None or not self._enough(attempt.votes):
            return []
        if attempt.value is None:
            value = self._heard.value if self._heard else self._wish
            assert value is not None
            return self._issue(attempt.ballot, value)
        receivers = dict.fromkeys(self.view.voters + attempt.value.voters)
        decided = self._learn(attempt.value)
        return decided + [Send(voter, ViewDecided(self.view)) for voter in receivers if voter != self.me]

    def _enough(self, votes: Set[str]) -> bool:
        agents = self.view.agents
        fencing = not agents or bool(agents & votes) or agents <= self._gone
        return fencing and is_quorum(self.view.voters, votes, self._gone)

    def _learn(self, view: View) -> list[Action]:
        if view.number <= self.view.number:
            assert view.number < self.view.number or view == self.view, "two views of one number"
            return []
        self.view = view
        self._forget()
        return [Decided(view)]

    def _request(self, attempt: _Try) -> Prepare | Propose:
        if attempt.value is None:
            return Prepare(self.view, attempt.ballot)
        return Propose(self.view, attempt.ballot, attempt.value)
