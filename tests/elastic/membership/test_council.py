"""The council, case by case; `test_council_properties.py` has the laws under random schedules."""

from __future__ import annotations

import json

import pytest
from tests.elastic.membership.test_council_properties import World, view

from weft.elastic.membership.council import Council, Decided, Send
from weft.elastic.membership.council_messages import (
    COUNCIL_MESSAGES,
    Accept,
    CouncilMessage,
    Outbid,
    Promise,
    Proposal,
    Propose,
    ViewDecided,
)
from weft.elastic.membership.view import Member, View, order_members
from weft.messages import Decoder, encode


def world(names: str, voters: str | None = None, members: str | None = None) -> World:
    """All connected and greeted, in view 0."""
    voters = voters or names
    return World(names, view(0, members or voters, voters))


def propose(world: World, name: str) -> View:
    """This one proposes that only itself goes on; gives the view that would be."""
    before = set(world.proposed)
    world.propose(name, name, name)
    (value,) = world.proposed - before
    return value


def deliver(world: World, *pairs: str) -> None:
    """One message for each pair: "ab" is the next from a to b."""
    for pair in pairs:
        world.deliver((pair[0], pair[1]))


def drain(world: World, *names: str) -> None:
    """Deliver all between these, and the last words and deaths of others to them."""
    while pairs := [
        p for p in world.waiting() if p[1] in names and (p[0] in names or p[0] not in world.alive)
    ]:
        world.deliver(pairs[0])


def numbers(world: World) -> dict[str, int]:
    return {name: council.view.number for name, council in world.councils.items()}


def fenced(world: World) -> str:
    return "".join(name for name, council in world.councils.items() if council.fenced)


def kinds(world: World, pair: str) -> list[str]:
    """The kinds of the messages that wait to be delivered."""
    waiting = world.queues[pair[0], pair[1]]
    return [str(message.__struct_config__.tag) for message in waiting if isinstance(message, CouncilMessage)]


def test_the_first_voter_needs_one_round_trip() -> None:
    w = world("abc")
    propose(w, "a")
    assert kinds(w, "ab") == kinds(w, "ac") == ["propose"]
    deliver(w, "ab", "ba")
    assert numbers(w) == {"a": 1, "b": 0, "c": 0}
    w.settle()
    assert numbers(w) == {"a": 1, "b": 1, "c": 1}


def test_others_ask_first() -> None:
    w = world("abc")
    value = propose(w, "b")
    assert kinds(w, "ba") == kinds(w, "bc") == ["prepare"]
    w.settle()
    assert {council.view for council in w.councils.values()} == {value}


def test_the_first_voter_asks_too_when_it_changes_its_mind() -> None:
    w = world("abc")
    value = propose(w, "a")
    propose(w, "a")
    assert kinds(w, "ab") == ["propose", "prepare"]
    w.settle()
    assert w.councils["b"].view == value


def test_one_alone_decides_at_once() -> None:
    council = Council("a", view(0, "a", "a"))
    value = view(1, "a", "a")
    assert council.propose(value) == [Decided(value)]
    assert not council.fenced


def test_messages_arrive_as_they_were_sent() -> None:
    now, following = view(0, "abc", "abc"), view(1, "b", "b")
    council = Council("b", now)
    sent = [*council.propose(following), *council.met("a")]
    requests = [action.message for action in sent if isinstance(action, Send)]
    votes = [Promise(0, (1, 2)), Promise(0, (1, 2), Proposal((0, 0), following)), Accept(0, (1, 2))]
    messages = [*requests, *votes, Propose(now, (1, 1), following), Outbid(0, (2, 0)), ViewDecided(following)]
    assert {type(message) for message in messages} == set(COUNCIL_MESSAGES)
    decoder = Decoder(*COUNCIL_MESSAGES)
    assert [decoder.decode(encode(message)) for message in messages] == messages


def test_a_view_must_be_the_next() -> None:
    with pytest.raises(ValueError, match="the view after 3 must be next, got number 5"):
        Council("a", view(3, "a", "a")).propose(view(5, "a", "a"))


def test_who_is_no_voter_only_learns() -> None:
    w = world("abc", voters="ab")
    w.propose("c", "c", "c")
    assert not w.waiting()
    w.propose("a", "abc", "abc")
    w.settle()
    assert numbers(w) == {"a": 1, "b": 1, "c": 1}


def test_fenced_from_the_vote_to_the_decision() -> None:
    w = world("abc")
    propose(w, "b")
    assert fenced(w) == "b"
    deliver(w, "ba")
    assert fenced(w) == "ab"
    w.settle()
    assert fenced(w) == ""


def test_half_decides_only_with_the_first_voter() -> None:
    w = world("abcd")
    for pair in ("ac", "ad", "bc", "bd"):
        w.cut(*pair)
    propose(w, "c")
    propose(w, "b")
    w.settle()
    assert numbers(w) == {"a": 1, "b": 1, "c": 0, "d": 0}


def test_a_laggard_that_asks_is_told_and_may_skip_numbers() -> None:
    w = world("abc")
    w.cut("a", "c")
    w.cut("b", "c")
    for _ in range(3):
        w.propose("a", "abc", "abc")
        w.settle()
    propose(w, "c")
    w.mend("b", "c")
    w.settle()
    assert numbers(w) == {"a": 3, "b": 3, "c": 3}


def test_an_outbid_proposer_knows_and_tries_again() -> None:
    w = world("abc")
    propose(w, "b")
    propose(w, "c")
    deliver(w, "ca", "ba", "ab")
    assert w.councils["b"].outbid
    w.act("b", w.councils["b"].again())
    w.settle()
    assert set(numbers(w).values()) == {1}


def test_of_two_voters_the_second_goes_on_once_the_first_is_proven_dead() -> None:
    w = world("ab")
    w.die("a")
    value = propose(w, "b")
    assert numbers(w)["b"] == 0
    w.settle()
    assert w.councils["b"].view == value


def test_a_death_behind_a_broken_link_proves_nothing() -> None:
    w = world("ab")
    w.cut("a", "b")
    propose(w, "a")  # alone, and b does not hear of it
    w.die("a")
    propose(w, "b")
    w.settle()
    assert numbers(w) == {"a": 1, "b": 0}


def test_a_link_made_anew_is_whole_again() -> None:
    w = world("ab")
    w.cut("a", "b")
    w.mend("a", "b")
    w.settle()
    w.die("a")
    propose(w, "b")
    w.settle()
    assert numbers(w)["b"] == 1


def test_what_the_dead_proposed_is_kept_even_if_it_came_too_late_to_accept() -> None:
    w = world("abcde")
    value = propose(w, "a")
    propose(w, "e")
    deliver(w, "ed", "de", "ab", "ba", "ac")  # d has promised e when a's proposal arrives
    w.doomed["a"] = 1
    deliver(w, "ca")  # a decides with b and c, and dies before it tells anyone
    assert w.decided[1] == value
    w.die("b")
    w.die("c")
    drain(w, "d", "e")
    assert w.councils["e"].view == value


def test_a_ballot_is_over_once_a_higher_one_is_promised() -> None:
    w = world("abc")
    propose(w, "a")
    value = propose(w, "c")
    deliver(w, "cb", "bc", "cb")
    w.doomed["c"] = 1
    deliver(w, "bc")  # c decides with b, and dies before it tells anyone
    w.die("b")
    drain(w, "a")  # a is all that lives: its votes would be enough
    assert numbers(w) == {"a": 0, "b": 0, "c": 1}
    w.act("a", w.councils["a"].again())
    assert w.councils["a"].view == value


def test_a_new_link_begins_with_the_ballot_then_the_hello() -> None:
    """In the other order the first one would count without one who died between the two."""
    w = world("abcde")
    w.cut("a", "e")
    propose(w, "a")
    deliver(w, "ab", "ba")
    propose(w, "e")
    deliver(w, "ec", "ce", "ed", "de", "eb", "eb")  # c, d and e prepared another value, b accepts it too
    w.mend("a", "e")
    w.doomed["e"] = 1
    deliver(w, "ae")
    w.die("c")
    w.die("d")
    drain(w, "a")
    assert numbers(w)["a"] == 0


def test_what_is_under_way_is_repeated_over_a_new_link() -> None:
    w = world("abc")
    w.cut("a", "c")
    value = propose(w, "c")
    deliver(w, "cb", "bc")
    w.mend("a", "c")
    deliver(w, "ac", "ca", "ca", "ca", "cb")
    w.doomed["c"] = 1
    deliver(w, "bc")  # c decides with b, and dies before it tells anyone
    w.die("b")
    drain(w, "a")
    propose(w, "a")
    assert w.councils["a"].view == value


@pytest.mark.parametrize("actions", range(1, 4))
def test_one_who_dies_while_it_decides_alone_leaves_no_second_view(actions: int) -> None:
    w = world("ab")
    w.doomed["a"] = actions
    propose(w, "a")
    drain(w, "b")
    if numbers(w)["b"] == 0:
        propose(w, "b")
    assert numbers(w)["b"] == 1


def test_the_highest_proposal_heard_is_taken_over() -> None:
    w = world("abcde")
    propose(w, "a")
    value = propose(w, "b")
    deliver(w, "bc", "cb", "bd", "db", "bc", "cb", "bd")
    w.doomed["b"] = 1
    deliver(w, "db")  # b decides with c and d
    propose(w, "e")
    deliver(w, "ea", "ae", "ae", "ec", "ce")
    request = w.queues["e", "d"][-1]
    assert isinstance(request, Propose)
    assert request.value == value


def test_votes_for_an_old_ballot_do_not_count() -> None:
    w = world("abc")
    propose(w, "c")
    deliver(w, "ca")
    w.act("c", w.councils["c"].again())
    deliver(w, "ac")
    assert kinds(w, "ca") == ["prepare"]
    assert kinds(w, "cb") == ["prepare", "prepare"]


def test_a_request_brings_its_view_along() -> None:
    w = world("abc")
    w.propose("a", "abc", "abc")
    deliver(w, "ac")
    w.doomed["a"] = 3
    deliver(w, "ca")  # a decides, tells b, dies: c does not know
    assert numbers(w) == {"a": 1, "b": 0, "c": 0}
    deliver(w, "ab", "ab")
    w.propose("b", "abc", "abc")
    deliver(w, "bc")
    assert numbers(w)["c"] == 1
    assert fenced(w) == "bc"
    deliver(w, "cb", "bc", "cb")
    assert numbers(w)["b"] == 2


def test_a_death_leaves_all_the_living_to_be_asked() -> None:
    w = world("abcde")
    w.cut("e", "c")
    w.cut("e", "d")
    w.die("a")
    w.die("b")
    propose(w, "c")
    drain(w, "c", "d")
    assert numbers(w)["c"] == 0  # two of three that live: e may have decided with a and b


def test_a_quorum_has_one_whose_workers_take_part() -> None:
    w = world("abc", members="a")
    w.cut("a", "b")
    w.cut("a", "c")
    propose(w, "b")
    w.settle()
    assert numbers(w) == {"a": 0, "b": 0, "c": 0}  # a could go on with steps of view 0


def test_no_step_of_the_old_view_completes_after_one_of_the_new() -> None:
    w = world("ab", members="b")
    propose(w, "a")
    assert numbers(w)["a"] == 0
    deliver(w, "ab", "ba")
    assert numbers(w) == {"a": 1, "b": 0}
    w.step("a")
    assert w.stepped == 1
    w.step("b")  # the world would complain


def test_unless_all_of_those_are_gone() -> None:
    w = world("abc", members="a")
    w.die("a")
    propose(w, "b")
    w.settle()
    assert numbers(w) == {"a": 0, "b": 1, "c": 1}


def member(host: str, slot: int, incarnation: int = 0, weight: float = 1.0) -> Member:
    return Member(f"{host}/{slot}.{incarnation}", host, host, slot, "127.0.0.1", 1, 2, weight)


def test_a_view_survives_json() -> None:
    whole = View(3, (member("h1", 0, weight=0.1), member("h2", 0)), ("h2", "h1"), "h3 left")
    assert View.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    assert (whole.size, whole.rank_of("h2/0.0"), whole.rank_of("h3/0.0")) == (2, 1, None)


def test_who_stays_keeps_its_order_and_hosts_stay_together() -> None:
    before = (member("h2", 1), member("h2", 0), member("h1", 0), member("h3", 0))
    now = {
        member("h0", 0),
        member("h1", 0),
        member("h2", 0),
        member("h2", 1),
        member("h2", 2),
        member("h3", 0, 1),
    }
    workers = [member.worker for member in order_members(before, now)]
    assert workers == ["h2/1.0", "h2/0.0", "h2/2.0", "h1/0.0", "h0/0.0", "h3/0.1"]


def test_ranks_take_what_is_new_of_those_who_stay() -> None:
    assert order_members((member("h1", 0),), [member("h1", 0, weight=0.5)]) == (member("h1", 0, weight=0.5),)
