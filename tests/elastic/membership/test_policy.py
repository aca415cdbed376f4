"""Who should be in the next view, and who is slow: decisions without sockets or processes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.elastic.membership.policy import MembershipRules, ViewChange, choose_voters, next_view
from weft.elastic.membership.reports import AgentReport, WorkerReport, WorkerState
from weft.elastic.membership.speeds import LinkSpeeds, Speeds, slow_links, slow_members, weights_by_speed
from weft.elastic.membership.view import Member, View

RULES = MembershipRules(least=2, most=4, gather_s=0.2, broken_s=1.0, waiting_s=2.0, start_within_s=30.0)


def worker(name: str, state: str = "member", **more: float) -> WorkerReport:
    slot = int(name.partition("/")[2].partition(".")[0])
    return WorkerReport(worker=name, slot=slot, state=state, **{"since": 9.0, **more})  # type: ignore[arg-type]


def agent(host: str, *workers: WorkerReport, witness: bool = False) -> AgentReport:
    return AgentReport(f"{host}#1", host, f"10.0.0.{ord(host[0])}", workers, witness=witness)


def view(*names: str, number: int = 3) -> View:
    """A view of these workers; their agents vote in the same order."""
    members = tuple(
        Member(name, f"{name[0]}#1", name[0], int(name.partition("/")[2][0]), "", 0, 0) for name in names
    )
    return View(number, members, tuple(dict.fromkeys(member.agent for member in members)), "")


def names(change: ViewChange | None) -> list[str]:
    assert change is not None
    return [member.worker for member in change.view.members]


def test_nothing_follows_while_all_are_there() -> None:
    agents = [agent("a", worker("a/0.0")), agent("b", worker("b/0.0"))]
    assert next_view(view("a/0.0", "b/0.0"), agents, RULES) is None


def test_the_first_view_waits_for_all_but_not_for_ever() -> None:
    agents = [agent("a", worker("a/0.0", "ready")), agent("b", worker("b/0.0", "ready"))]
    nobody = View(0, (), ("a#1", "b#1"), "")
    assert next_view(nobody, agents[:1], RULES, waited_s=99) is None, "fewer than the least"
    assert next_view(nobody, agents, RULES, waited_s=29, expected=3) is None
    started = next_view(nobody, agents, RULES, waited_s=31, expected=3)
    assert started == next_view(nobody, agents, RULES, waited_s=0, expected=2)
    assert started is not None
    assert (started.kind, started.urgent, started.view.number) == ("start", True, 1)
    assert names(started) == ["a/0.0", "b/0.0"]


def test_the_first_view_waits_a_moment_for_a_witness_so_that_it_has_a_vote() -> None:
    agents = [agent("a", worker("a/0.0", "ready")), agent("b", worker("b/0.0", "ready"))]
    nobody = View(0, (), ("a#1", "b#1", "w#1"), "")
    assert next_view(nobody, agents, RULES, waited_s=1.9, expected=2) is None
    without = next_view(nobody, agents, RULES, waited_s=2.1, expected=2)
    whole = next_view(nobody, [*agents, agent("w", witness=True)], RULES, waited_s=0.0, expected=2)
    assert without is not None
    assert whole is not None
    assert (without.view.voters, whole.view.voters) == (("a#1", "b#1"), ("a#1", "b#1", "w#1"))


def test_who_is_gone_is_left_out_at_once_and_who_is_ready_takes_part_with_it() -> None:
    agents = [agent("a", worker("a/0.0")), agent("b", worker("b/0.1", "ready")), agent("c", worker("c/0.0"))]
    change = next_view(view("a/0.0", "b/0.0", "c/0.0"), agents, RULES)
    assert change is not None
    assert (change.kind, change.urgent, change.view.cause) == ("death", True, "lost b/0.0")
    assert names(change) == ["a/0.0", "c/0.0", "b/0.1"]


def test_what_an_agent_said_before_it_knew_of_the_view_counts() -> None:
    agents = [agent("a", worker("a/0.0")), agent("b", worker("b/0.0", "ready"))]
    assert next_view(view("a/0.0", "b/0.0"), agents, RULES) is None


def test_too_few_are_no_view() -> None:
    assert next_view(view("a/0.0", "b/0.0"), [agent("a", worker("a/0.0"))], RULES) is None


def test_one_that_leaves_waits_for_the_end_of_a_step_of_the_others() -> None:
    now = view("a/0.0", "a/1.0", "b/0.0")
    leaver = agent("b", worker("b/0.0", "leaving", stepped=3))
    assert next_view(now, [agent("a", worker("a/0.0"), worker("a/1.0")), leaver], RULES) is None
    change = next_view(now, [agent("a", worker("a/0.0", stepped=3), worker("a/1.0")), leaver], RULES)
    assert change is not None
    assert (change.kind, change.urgent, names(change)) == ("leave", False, ["a/0.0", "a/1.0"])
    assert change.view.voters == ("a#1",)


def test_those_who_alone_have_the_state_leave_only_after_others_have_come() -> None:
    rules = replace(RULES, least=1, most=1)
    leaver = agent("a", worker("a/0.0", "leaving", stepped=3))
    assert next_view(view("a/0.0"), [leaver], rules) is None
    fresh = agent("b", worker("b/0.0", "ready"))
    change = next_view(view("a/0.0"), [leaver, fresh], rules)
    assert change is not None
    assert (change.kind, names(change)) == ("join", ["a/0.0", "b/0.0"])
    both = replace(change.view, number=4)
    assert next_view(both, [leaver, agent("b", worker("b/0.0"))], rules) is None, "it has not stepped yet"
    after = next_view(both, [leaver, agent("b", worker("b/0.0", stepped=4))], rules)
    assert after is not None
    assert (after.kind, names(after)) == ("leave", ["b/0.0"])


def test_one_that_comes_waits_a_moment_for_others_unless_there_is_no_room_for_more() -> None:
    now = view("a/0.0", "b/0.0")
    there = [agent("a", worker("a/0.0", stepped=3)), agent("b", worker("b/0.0"))]
    fresh = [worker("c/0.0", "ready", since=0.1)]
    assert next_view(now, [*there, agent("c", *fresh)], RULES) is None
    fresh.append(worker("c/1.0", "ready", since=0.1))
    change = next_view(now, [*there, agent("c", *fresh)], RULES)
    assert change is not None
    assert (change.kind, change.urgent) == ("join", False)
    full = replace(RULES, most=2)
    assert next_view(now, [*there, agent("c", *fresh)], full) is None


def test_nobody_joins_a_view_before_its_members_have_met() -> None:
    """Who was told of both views at once would go to the later, and the others wait for it in the earlier."""
    now, fresh = view("a/0.0", "b/0.0"), agent("c", worker("c/0.0", "ready"))
    agents = [agent("a", worker("a/0.0", stepped=2)), agent("b", worker("b/0.0", stepped=-1)), fresh]
    assert next_view(now, agents, RULES) is None
    assert next_view(now, agents, RULES, weights={"a/0.0": 0.5}) is None
    met = [agent("a", worker("a/0.0", stepped=3)), *agents[1:]]
    assert names(next_view(now, met, RULES)) == ["a/0.0", "b/0.0", "c/0.0"]


def test_a_group_that_broke_with_nobody_dead_is_made_again() -> None:
    now = view("a/0.0", "b/0.0")
    broken = worker("b/0.0", broken=3, broken_for=1.5)
    agents = [agent("a", worker("a/0.0")), agent("b", broken)]
    assert next_view(now, agents, RULES, age_s=0.5) is None, "the view is young"
    change = next_view(now, agents, RULES, age_s=5)
    assert change is not None
    assert (change.kind, change.urgent) == ("broken", True)
    assert next_view(view("a/0.0", "b/0.0", number=4), agents, RULES, age_s=5) is None, "of an older view"


def test_new_shares_are_a_view_of_the_same_members() -> None:
    agents = [agent("a", worker("a/0.0", stepped=3)), agent("b", worker("b/0.0"))]
    change = next_view(view("a/0.0", "b/0.0"), agents, RULES, weights={"b/0.0": 0.5})
    assert change is not None
    assert [member.weight for member in change.view.members] == [1.0, 0.5]
    assert (change.kind, change.urgent) == ("slow", False)


def test_an_agent_whose_worker_has_died_goes_on_voting_beside_others_and_not_if_its_host_leaves() -> None:
    now = view("a/0.0", "b/0.0", "c/0.0", "d/0.0")
    rest = [agent(host, worker(f"{host}/0.0", stepped=3)) for host in "acd"]
    w = agent("w", witness=True)
    for without in (agent("b"), agent("b", worker("b/0.1", "starting"))):
        change = next_view(now, [*rest, without, w], RULES)
        assert change is not None
        assert names(change) == ["a/0.0", "c/0.0", "d/0.0"]
        assert change.view.voters == ("a#1", "b#1", "c#1", "d#1", "w#1")
    lost = next_view(now, [*rest, w], RULES)
    leaves = next_view(now, [*rest, agent("b", worker("b/0.0", "leaving", stepped=3)), w], RULES)
    for change in (lost, leaves):
        assert change is not None
        assert change.view.voters == ("a#1", "c#1", "d#1")


def test_a_host_that_has_all_members_decides_alone() -> None:
    change = next_view(
        view("a/0.0", "b/0.0"), [agent("a"), agent("b", worker("b/0.0"))], replace(RULES, least=1)
    )
    assert change is not None
    assert change.view.voters == ("b#1",)


@pytest.mark.parametrize(
    ("agents", "voters"),
    [(["a"], ["a"]), (["b", "a"], ["b", "a", "w"]), (["a", "b", "c"], ["a", "b", "c"])],
)
def test_a_witness_votes_where_halves_would_be_equal(agents: list[str], voters: list[str]) -> None:
    assert choose_voters(agents, ["w", "x"]) == tuple(voters)
    assert choose_voters(agents, []) == tuple(agents)


HOSTS = st.sampled_from("abcd")
NAMES = st.builds("{}/{}.{}".format, HOSTS, st.integers(0, 1), st.integers(0, 1))
STATES = st.sampled_from(["starting", "ready", "member", "leaving"])


@st.composite
def situations(draw: st.DrawFn) -> tuple[View, list[AgentReport]]:
    """Any view, and any reports of any agents."""
    now = view(*draw(st.lists(NAMES, unique=True, max_size=5)))
    here = draw(st.dictionaries(NAMES, STATES, max_size=8))
    hosts = draw(st.sets(HOSTS)) | {name[0] for name in here}
    agents = [agent(host, *(worker(n, s) for n, s in here.items() if n[0] == host)) for host in sorted(hosts)]
    return now, [*agents, *([agent("w", witness=True)] if draw(st.booleans()) else [])]


@given(situations(), st.floats(0, 60), st.floats(0, 60))
def test_laws_of_the_next_view(
    situation: tuple[View, list[AgentReport]], waited_s: float, age_s: float
) -> None:
    now, agents = situation
    change = next_view(now, agents, RULES, waited_s=waited_s, age_s=age_s)
    if change is None:
        return
    new = change.view
    states = {report.worker: report.state for agent in agents for report in agent.workers}
    members = [member.worker for member in new.members]
    before = {member.worker for member in now.members}
    assert new.number == now.number + 1
    leaving = sum(state == "leaving" for state in states.values())
    assert RULES.least <= len(members) <= max(RULES.most + leaving, len(before))
    assert before & set(members) or not before & states.keys(), "the state goes on while anyone has it"
    assert len(set(members)) == len(members)
    assert all(name in states for name in members), "nobody that is not there"
    assert all(states[name] == "ready" for name in members if name not in before), (
        "no newcomer that is not ready"
    )
    assert members[0] in before or not before & set(members), "rank 0 has the state if anyone has"
    voters = set(new.voters)
    assert new.agents <= voters
    assert len(voters) == len(new.voters)
    living = {agent.agent for agent in agents}
    assert voters - new.agents <= {"w#1"} | ({*now.voters} & living if len(new.agents) > 1 else set())
    staying = [voter for voter in now.voters if voter in voters]
    assert list(new.voters[: len(staying)]) == staying, "who has voted keeps its place"
    again = dict.fromkeys(members, WorkerState.MEMBER)
    agents_then = [
        replace(a, workers=tuple(replace(r, state=again.get(r.worker, r.state)) for r in a.workers))
        for a in agents
    ]
    then = next_view(new, agents_then, RULES)
    assert then is None or then.kind in ("join", "leave"), "a change settles what it was for"


def test_a_slow_link_is_that_of_the_host_whose_words_all_take_long() -> None:
    quick, slow = 0.001, 0.05
    pairs = {("a", "b"): quick, ("b", "a"): quick, ("a", "c"): slow, ("c", "a"): slow, ("b", "c"): slow}
    assert slow_links(pairs) == {"c": (slow, quick)}
    assert slow_links({("a", "b"): slow}) == {}, "it may be at either end"
    assert slow_links({pair: 3 * seconds for pair, seconds in pairs.items()}).keys() == {"c"}
    assert slow_links(dict.fromkeys(pairs, slow)) == {}, "a slow network is nobody's fault"
    assert slow_links({pair: seconds / 10 for pair, seconds in pairs.items()}) == {}, "5 ms hold nobody up"
    links = LinkSpeeds()
    seen = []
    for look in (pairs, {}, pairs, pairs, {}, {}):
        links.look(look)
        seen.append(bool(links.slow))
    assert seen == [False, False, False, True, True, False]


def test_slow_is_who_is_slower_than_the_others() -> None:
    assert slow_members({"a": 1.0, "b": 1.1, "c": 1.5}) == ("c",)
    assert slow_members({"a": 1.0, "b": 1.3}) == ()
    assert slow_members({"a": 1.0}) == ()


def counts_after(steps: int, seconds: dict[str, float], share: int = 1) -> dict[str, tuple[int, float]]:
    return {name: (1 + share * steps, 1.0 + share * steps * own) for name, own in seconds.items()}


def test_one_at_half_again_the_time_is_seen_within_20_steps() -> None:
    speeds = Speeds()
    seen = None
    for step in range(21):
        speeds.look(counts_after(step, {"a": 0.10, "b": 0.11, "c": 0.15}))
        if speeds.slow and seen is None:
            seen = step
    assert speeds.slow == {"c"}
    assert seen is not None
    assert seen <= 20


def test_one_bad_window_is_noise_and_so_is_one_good_one() -> None:
    speeds = Speeds(micros=2)
    total = {"a": (1, 0.0), "b": (1, 0.0)}

    def window(slow: float) -> frozenset[str]:
        for _ in range(2):
            total["a"] = total["a"][0] + 1, total["a"][1] + 1.0
            total["b"] = total["b"][0] + 1, total["b"][1] + slow
            speeds.look(total)
        return speeds.slow

    speeds.look(total)
    assert [bool(window(slow)) for slow in (1, 3, 1, 3, 3, 1, 3, 1, 1)] == [
        False, False, False, False, True, True, True, True, False,
    ]  # fmt: skip


def test_one_with_a_small_share_is_not_waited_for() -> None:
    speeds = Speeds(micros=4)
    for step in range(1, 40):
        speeds.look({"a": (8 * step, 0.8 * step), "b": (8 * step, 0.8 * step), "c": (step, 0.4 * step)})
    assert speeds.slow == {"c"}


@given(
    st.dictionaries(st.sampled_from("abcde"), st.floats(0.001, 10), min_size=2),
    st.sets(st.sampled_from("abcde")),
    st.floats(0.05, 1.0),
)
def test_laws_of_shares(seconds: dict[str, float], slow: set[str], weight: float) -> None:
    now = dict.fromkeys(seconds, weight)
    wanted = weights_by_speed(seconds, slow, now)
    if wanted is not None:
        assert wanted.keys() == now.keys()
        assert all(0.05 <= share <= 1.0 for share in wanted.values())
        assert all(wanted[worker] == 1.0 for worker in seconds if worker not in slow)
        assert weights_by_speed(seconds, slow, wanted) is None, "it settles at once"
