"""What the preflight concludes from facts that are made up."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.launch.sites import machine

import weft
from weft.launch.address import Reach
from weft.launch.agent.probes import SLICE_S, pace, rounds
from weft.launch.agent.survey import Survey
from weft.launch.preflight import linkcache
from weft.launch.preflight.cardrule import card_rules
from weft.launch.preflight.facts import CheckFinding, ClockOffset, ConnectAttempt, Facts
from weft.launch.preflight.judge import judge
from weft.launch.preflight.report import PreflightReport, render_report, render_troubles
from weft.launch.preflight.speeds import MeasuredLink, render_speeds, slow_links
from weft.topology.host import Host, NetworkCard

HOSTS = ("h1", "h2", "h3", "h4")


def survey(host: Host, **more: Any) -> Survey:
    made = Survey(
        host=host,
        python="3.11.7",
        torch="2.13.0+cpu",
        weft=weft.__version__,
        executable="/env/bin/python",
        clock_s=0.0,
        open_files=1024,
        locked_bytes=-1,
    )
    return replace(made, **more)


def address(host: str) -> str:
    return f"10.0.0.{host[-1]}"


def healthy(count: int = 4) -> Facts:
    """Hosts of which nothing bad can be said."""
    hosts = HOSTS[:count]
    return Facts(
        hosts=hosts,
        leader="h1",
        surveys={host: survey(machine(host)) for host in hosts},
        tried=("10.0.0.1",),
        reached={
            host: (Reach(address="10.0.0.1", source=address(host), seen_as=address(host)),)
            for host in hosts[1:]
        },
        address="10.0.0.1",
        knocks=tuple(ConnectAttempt(a, b, address(b)) for a, b in permutations(hosts, 2)),
        links=measured({}, hosts),
        clocks={host: ClockOffset(0.001, 0.002) for host in hosts},
        missing=dict.fromkeys(hosts, ()),
    )


def measured(slow: dict[tuple[str, str], float], hosts: tuple[str, ...] = HOSTS) -> tuple[MeasuredLink, ...]:
    return tuple(
        MeasuredLink(source=a, target=b, mbps=slow.get((a, b), 940.0), rtt_ms=0.2)
        for a, b in permutations(hosts, 2)
    )


def with_survey(host: str, /, **changes: Any) -> Facts:
    facts = healthy()
    return replace(facts, surveys={**facts.surveys, host: replace(facts.surveys[host], **changes)})


def with_card(host: str, *cards: NetworkCard) -> Facts:
    before = healthy().surveys[host].host
    return with_survey(host, host=replace(before, cards=(*before.cards[:1], *cards)))


def troubles(facts: Facts) -> list[CheckFinding]:
    return [finding for finding in judge(facts) if finding.status != "ok"]


def only(facts: Facts) -> CheckFinding:
    (finding,) = troubles(facts)
    return finding


def test_healthy_hosts_pass_every_check() -> None:
    findings = judge(replace(healthy(), port=29500))
    assert {finding.status for finding in findings} == {"ok"}
    assert list(dict.fromkeys(finding.name for finding in findings)) == [
        "ssh", "python", "torch", "weft", "hardware", "files", "port", "leader", "card", "connects", "links",
        "clock", "open files",
    ]  # fmt: skip


def test_a_host_without_peers_is_judged_by_itself() -> None:
    facts = Facts(
        hosts=("h1",), leader="h1", surveys={"h1": survey(machine())}, clocks={"h1": ClockOffset(9, 0)}
    )
    assert {finding.name for finding in judge(facts)} == {"ssh", "python", "torch", "weft", "open files"}


def test_an_unreachable_host_is_one_row_and_the_others_go_on() -> None:
    facts = healthy(3)
    trouble = "h4: sshd must be listening, got connection refused; start it there or check the port"
    found = only(replace(facts, hosts=HOSTS, troubles={"h4": trouble}))
    assert found == CheckFinding(
        name="ssh",
        hosts=("h4",),
        status="fail",
        got="sshd must be listening, got connection refused",
        fix="start it there or check the port",
    )


def test_a_trouble_without_advice_gets_some() -> None:
    facts = Facts(hosts=("h1",), leader="h1", troubles={"h1": "h1: odd"})
    assert only(facts).fix == "try: ssh h1 true"


def test_all_hosts_unreachable() -> None:
    facts = Facts(hosts=HOSTS, leader="h1", troubles=dict.fromkeys(HOSTS, "no; nothing"))
    assert len(judge(facts)) == len(troubles(facts)) == 4


@pytest.mark.parametrize(
    ("changes", "name", "status", "got"),
    [
        ({"python": "3.12.1"}, "python", "fail", "got 3.12.1 where others have 3.11"),
        ({"torch": "2.12.0+cpu"}, "torch", "fail", "got 2.12.0+cpu where others have 2.13.0+cpu"),
        ({"torch": None}, "torch", "fail", "got none where others have 2.13.0+cpu"),
        ({"torch": "2.13.0+cu128"}, "torch", "warn", "got 2.13.0+cu128 where others"),
        ({"weft": "9.9.9"}, "weft", "fail", f"got 9.9.9 and {weft.__version__} here"),
        ({"open_files": 256}, "open files", "warn", "must be allowed 1024 open files, got 256"),
        ({"rdma": True, "locked_bytes": 65536}, "locked memory", "warn", "lock 1.0 GiB, got 65536 bytes"),
        ({"host": machine("h3", cores=8)}, "hardware", "fail", "cores per socket 8 where h1 has 4"),
    ],
)  # fmt: skip
def test_a_host_that_differs_is_named(changes: dict[str, Any], name: str, status: str, got: str) -> None:
    found = only(with_survey("h3", **changes))
    assert (found.name, found.hosts, found.status) == (name, ("h3",), status)
    assert got in found.got
    assert found.fix


@pytest.mark.parametrize(
    "changes",
    [{"python": "3.11.9"}, {"locked_bytes": 65536}, {"rdma": True}, {"open_files": -1}],
    ids=str,
)  # fmt: skip
def test_what_does_not_matter_is_not_told(changes: dict[str, Any]) -> None:
    assert troubles(with_survey("h3", **changes)) == []


def test_the_odd_one_is_named_even_if_it_leads() -> None:
    assert only(with_survey("h1", torch="2.12.0")).hosts == ("h1",)


def test_uneven_hosts_may_be_allowed() -> None:
    facts = replace(with_survey("h3", host=machine("h3", cores=8)), allow_uneven=True)
    assert troubles(facts) == []
    assert any("allowed to differ: cores per socket 8" in finding.got for finding in judge(facts))


def test_missing_files_and_a_taken_port() -> None:
    missing = replace(healthy(), missing={**dict.fromkeys(HOSTS, ()), "h2": ("/data/train.py",)})
    assert only(missing).got == "every host must have /data/train.py, got none"
    assert only(missing).hosts == ("h2",)
    taken = only(replace(healthy(), port=22, port_free=False))
    assert taken.got == "the port must be free on the leader h1, got 22 which is in use"


def test_a_host_that_cannot_reach_the_leader() -> None:
    facts = healthy()
    refused = (Reach(address="10.0.0.1", source=None, seen_as=None, error="timed out"),)
    facts = replace(facts, reached={**facts.reached, "h3": refused}, address=None, knocks=(), links=())
    found = only(facts)
    assert found.hosts == ("h3",)
    assert "must reach the leader h1 at one same address, got 10.0.0.1: timed out" in found.got


def test_a_leader_with_only_loopback() -> None:
    facts = replace(healthy(), tried=(), reached={}, address=None, knocks=(), links=())
    assert "must have a network card that is up, got only loopback" in only(facts).got


def test_a_host_behind_address_translation() -> None:
    facts = healthy()
    hidden = (Reach(address="10.0.0.1", source="172.18.0.2", seen_as="10.0.0.9"),)
    found = only(replace(facts, reached={**facts.reached, "h2": hidden}))
    assert (found.name, found.hosts, found.status) == ("leader", ("h2",), "fail")
    assert "workers must connect to each other directly" in found.got
    assert "address 172.18.0.2 that h1 sees as 10.0.0.9" in found.got


@pytest.mark.parametrize(
    ("card", "got"),
    [
        ({"mtu": 9000, "speed_mbps": 1000}, "the same MTU on every host, got 9000 where others have 1500"),
        ({"speed_mbps": 100}, "got 100 Mbit/s where others have 1 Gbit/s"),
    ],
)
def test_cards_of_one_network_are_of_one_kind(card: dict[str, int], got: str) -> None:
    eth0 = NetworkCard(name="eth0", addresses=("10.0.0.4",), **card)  # type: ignore[arg-type]
    found = only(with_card("h4", eth0))
    assert (found.name, found.hosts, found.status) == ("card", ("h4",), "warn")
    assert got in found.got


ETH1 = NetworkCard(name="eth1", addresses=("192.168.9.2",), speed_mbps=1000)


def named(facts: Facts, interface: str | None = None, **variables: str) -> list[tuple[str, str, str]]:
    """(host, status, what is wrong) for cards that were named."""
    rules = card_rules(interface, variables)
    found = judge(replace(facts, rules=rules))
    return [(f.hosts[0], f.status, f.got) for f in found if f.name == "named card" and f.status != "ok"]


@pytest.mark.parametrize(
    "variables",
    [
        {"GLOO_SOCKET_IFNAME": "eth0"},
        {"NCCL_SOCKET_IFNAME": "eth"},
        {"NCCL_SOCKET_IFNAME": "=eth0"},
        {"NCCL_SOCKET_IFNAME": "ib,eth0:4000"},
        {"NCCL_SOCKET_IFNAME": "^docker,lo"},
        {"NCCL_SOCKET_IFNAME": "^=eth"},
        {"GLOO_SOCKET_IFNAME": ""},
    ],
    ids=str,
)
def test_a_right_card_is_right_in_every_syntax(variables: dict[str, str]) -> None:
    assert named(healthy(), **variables) == []


@pytest.mark.parametrize(
    ("variables", "status"),
    [
        ({"GLOO_SOCKET_IFNAME": "eth"}, "fail"),  # Gloo takes whole names
        ({"GLOO_SOCKET_IFNAME": "eth0,eth1"}, "fail"),
        ({"NCCL_SOCKET_IFNAME": "=eth"}, "warn"),  # nobody here has an accelerator to use NCCL with
        ({"NCCL_SOCKET_IFNAME": "^eth"}, "warn"),
        ({"GLOO_SOCKET_IFNAME": "lo"}, "fail"),
    ],
    ids=str,
)
def test_a_wrong_card_is_wrong_on_every_host(variables: dict[str, str], status: str) -> None:
    found = named(healthy(), **variables)
    assert {host for host, _, _ in found} == set(HOSTS)
    assert {weight for _, weight, _ in found} == {status}


def test_a_missing_card_is_told_with_those_that_are_there() -> None:
    facts = replace(healthy(), rules=card_rules(None, {"GLOO_SOCKET_IFNAME": "eth9"}))
    found = troubles(facts)[0]
    assert found.got == "GLOO_SOCKET_IFNAME=eth9 must be a card that is up, got none such among eth0"
    assert found.fix.startswith("the card to use is eth0: leave GLOO_SOCKET_IFNAME out")


def test_nccl_matters_where_there_are_accelerators() -> None:
    facts = healthy()
    facts = replace(facts, surveys={host: survey(machine(host, accelerators=2)) for host in HOSTS})
    assert {status for _, status, _ in named(facts, NCCL_SOCKET_IFNAME="=ib0")} == {"fail"}


def test_a_card_that_exists_but_leads_elsewhere() -> None:
    eth0 = healthy().surveys["h2"].host.cards[1]
    facts = with_card("h2", eth0, ETH1)
    rule = card_rules("eth1", {})
    facts = replace(facts, rules=rule)
    wrong = {finding.hosts[0]: finding for finding in troubles(facts)}
    assert "--interface eth1 must lead to the leader h1" in wrong["h2"].got
    assert wrong["h1"].status == "fail"  # our own option chooses the leader's card
    assert wrong["h2"].status == "warn"  # the others follow the route


def test_a_second_network_that_leads_to_the_leader_is_fine() -> None:
    facts = healthy(2)
    cards = {host: replace(ETH1, addresses=(f"192.168.9.{host[-1]}",)) for host in facts.hosts}
    surveys = {
        host: survey(replace(machine(host), cards=(*machine(host).cards, card)))
        for host, card in cards.items()
    }
    second = Reach(address="192.168.9.1", source="192.168.9.2", seen_as="192.168.9.2")
    facts = replace(facts, surveys=surveys, reached={"h2": (*facts.reached["h2"], second)})
    assert named(facts, GLOO_SOCKET_IFNAME="eth1") == []


def test_a_pair_that_does_not_connect() -> None:
    facts = healthy()
    knocks = [
        replace(k, error="timed out") if (k.source, k.target) == ("h2", "h3") else k for k in facts.knocks
    ]
    found = only(replace(facts, knocks=tuple(knocks)))
    assert (found.name, found.hosts, found.status) == ("connects", ("h2", "h3"), "fail")
    assert found.got == "h2 must connect to h3 (10.0.0.3), got: timed out"


def test_a_host_that_nobody_can_call_is_told_once() -> None:
    facts = healthy()
    knocks = tuple(replace(k, error="timed out") if k.target == "h3" else k for k in facts.knocks)
    found = only(replace(facts, knocks=knocks))
    assert found.hosts == ("h3",)
    assert "every host must connect to h3 (10.0.0.3), got none that can: timed out" in found.got


def test_a_link_that_carries_nothing() -> None:
    facts = healthy()
    dead = replace(facts.links[0], mbps=None, rtt_ms=None, error="timed out")
    found = only(replace(facts, links=(dead, *facts.links[1:])))
    assert (found.hosts, found.status) == (("h1", "h2"), "fail")
    assert "must carry data, got: timed out" in found.got


@pytest.mark.parametrize(
    ("ahead_s", "error_s", "got"),
    [(0.4, 0.0, None), (0.8, 0.4, None), (0.8, 0.1, "0.8 s ahead"), (-3600.0, 1.0, "3600.0 s behind")],
)
def test_clocks(ahead_s: float, error_s: float, got: str | None) -> None:
    facts = replace(healthy(), clocks={**healthy().clocks, "h2": ClockOffset(ahead_s, error_s)})
    if got is None:
        assert troubles(facts) == []
    else:
        assert (only(facts).hosts, only(facts).status) == (("h2",), "warn")
        assert got in only(facts).got


def test_a_launcher_with_a_wrong_clock_accuses_nobody() -> None:
    assert troubles(replace(healthy(), clocks=dict.fromkeys(HOSTS, ClockOffset(100.0, 0.0)))) == []


@given(st.integers(2, 6), st.data())
def test_a_slow_host_is_found_whoever_it_is(count: int, data: st.DataObject) -> None:
    hosts = tuple(f"h{number}" for number in range(count))
    bad = data.draw(st.sampled_from(hosts))
    noise = data.draw(st.lists(st.floats(700, 1000), min_size=count * count, max_size=count * count))
    speeds = dict(zip(permutations(hosts, 2), noise, strict=False))
    speeds |= {pair: 90.0 for pair in speeds if bad in pair}
    found = slow_links(measured(speeds, hosts))
    # Of two hosts nobody can say which is slow, nor that they are.
    assert [slow.hosts for slow in found] == ([(bad,)] if count > 2 else [])


def test_a_host_that_is_slow_one_way_is_a_slow_host() -> None:
    (found,) = slow_links(measured({("h3", other): 90.0 for other in ("h1", "h2", "h4")}))
    assert found.hosts == ("h3",)


def test_one_slow_link_accuses_no_host() -> None:
    (found,) = slow_links(measured({("h2", "h4"): 90.0}))
    assert (found.hosts, found.mbps, found.usual_mbps) == (("h2", "h4"), 90.0, 940.0)


def test_slow_links_are_warnings() -> None:
    found = only(replace(healthy(), links=measured({("h2", "h4"): 90.0})))
    assert (found.hosts, found.status) == (("h2", "h4"), "warn")
    assert "got 90 Mbit/s where 940 Mbit/s is usual" in found.got


@given(st.integers(0, 33))
def test_rounds_pair_everyone_once_and_nobody_twice_at_a_time(count: int) -> None:
    schedule = rounds(count)
    met = Counter(pair for pairs in schedule for pair in pairs)
    assert met == Counter(combinations(range(count), 2))
    for pairs in schedule:
        busy = [host for pair in pairs for host in pair]
        assert len(busy) == len(set(busy))
    assert len(schedule) <= max(0, count - 1 + count % 2)


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30), st.floats(0, 1))
def test_a_pace_is_one_that_was_seen(slices: list[int], elapsed_s: float) -> None:
    found = pace(slices, elapsed_s)
    assert found in [count / SLICE_S for count in slices] or len(slices) < 3


def test_a_pace_leaves_out_the_start_and_the_stalls() -> None:
    assert pace([5, 20, 200, 200, 0, 200, 200, 30], 0.15) == 200 / SLICE_S
    assert pace([100], 0.5) == 200.0
    assert pace([0], 0.0) == 0.0


def test_links_are_kept_for_an_hour(tmp_path: Path) -> None:
    folder, links = tmp_path / "links", measured({})
    assert linkcache.load("key", folder, 1000.0) is None
    linkcache.save("key", links, folder, 1000.0)
    assert [path.name for path in folder.iterdir()] == ["key.json"]
    assert linkcache.load("key", folder, 4599.0) == links
    assert linkcache.newest(folder) == {(link.source, link.target): (link, 1000.0) for link in links}
    assert linkcache.load("key", folder, 4600.0) is None
    assert linkcache.load("key", folder, 999.0) is None  # the clock was set back
    linkcache.forget("key", folder)
    assert linkcache.load("key", folder, 1000.0) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"measured_at": 1, "links": [{"a": 1}]}'])
def test_a_spoilt_cache_is_no_cache(tmp_path: Path, text: str) -> None:
    (tmp_path / "key.json").write_text(text)
    assert linkcache.load("key", tmp_path, 2.0) is None


def test_a_cache_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    linkcache.save("key", (), tmp_path / "file" / "links", 0.0)


def test_hosts_have_one_name_in_any_order() -> None:
    one, other = ("h1", "10.0.0.1", "eth0", 1000, 1500), ("h2", "10.0.0.2", "eth0", None, 1500)
    assert linkcache.fingerprint([one, other]) == linkcache.fingerprint([other, one])
    assert linkcache.fingerprint([one]) != linkcache.fingerprint([(*one[:3], 100, 1500)])


def report(facts: Facts) -> PreflightReport:
    return PreflightReport(hosts=facts.hosts, findings=judge(facts), links=facts.links)


def test_the_table_groups_hosts_and_gives_each_fix_once() -> None:
    text = render_report(report(replace(healthy(), rules=card_rules(None, {"GLOO_SOCKET_IFNAME": "eth9"}))))
    lines = text.splitlines()
    assert "✓ ssh         all         answers" in lines
    assert "✓ leader      h2, h3, h4  h1 reached at 10.0.0.1" in lines
    assert sum(line.startswith("✗ named card  all") for line in lines) == 1
    assert sum(line.startswith("✗ named card all: the card to use is eth0") for line in lines) == 1
    assert lines[-1] == "4 failures; a run would not start"


def test_verbose_gives_each_host_a_row() -> None:
    text = render_report(report(healthy()), verbose=True)
    assert text.count("✓ torch") == 4
    assert "round trip in ms" in text
    assert text.endswith("\n4 hosts are ready")


def test_warnings_let_a_run_go_on() -> None:
    made = report(with_survey("h2", open_files=12))
    assert made.ok
    assert render_report(made).endswith("\n4 hosts are ready with 1 warning")
    (line,) = render_troubles(made)
    assert line.startswith("! open files h2: a process must be allowed 1024 open files, got 12; raise")


def test_a_report_is_plain_data() -> None:
    data = json.loads(json.dumps(report(with_survey("h2", torch="9.9.9")).to_json()))
    assert data["ok"] is False
    (failed,) = [finding for finding in data["findings"] if finding["status"] == "fail"]
    assert failed["hosts"] == ["h2"]
    assert (
        failed["fix"]
        == "install the same there: ssh h2 /env/bin/python -m pip install torch==2.13.0 (build cpu)"
    )
    assert data["links"][0] == {"source": "h1", "target": "h2", "mbps": 940.0, "rtt_ms": 0.2, "error": None}


def test_the_bandwidth_table() -> None:
    links = (
        MeasuredLink(source="h1", target="h2", mbps=9410.0),
        MeasuredLink(source="h2", target="h1", error="timed out"),
    )
    assert render_speeds(("h1", "h2"), links).splitlines() == [
        "Gbit/s, from row to column",
        "        h1    h2",
        "  h1     -  9.41",
        "  h2     ?     -",
    ]
