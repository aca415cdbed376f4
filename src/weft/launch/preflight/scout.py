"""Asking the hosts: what is there, who reaches whom, how fast.

Everything is asked of the agents that the ssh engine has started anyway, all hosts at once. The quick questions take
three round trips. Measuring every link takes about a quarter of a second for each host, so a run does it only when
these hosts were not measured within the last hour; `weft check`, and `check()`, always measure anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import permutations
from typing import Literal, TextIO

from weft.errors import CheckError, ConnectError
from weft.files import cache_folder
from weft.launch.address import Reach, candidates, choose_address
from weft.launch.agent.probes import rounds
from weft.launch.agent.protocol import (
    AgentOrder,
    FilesFound,
    FindFiles,
    FindPort,
    HostSurveyed,
    LinkMeasured,
    MeasureLink,
    OpenProbePort,
    PortFound,
    ProbePortOpened,
    ProbeResult,
    ProbeTarget,
    ReachTargets,
    TargetsReached,
)
from weft.launch.command import Command
from weft.launch.config import LaunchConfig, carried_variables
from weft.launch.control.agents import HostAnswers
from weft.launch.engines.hosts import ANSWER_TIMEOUT_S, REACH_TIMEOUT_S, HostKnowledge, Hosts
from weft.launch.preflight import linkcache
from weft.launch.preflight.cardrule import card_rules
from weft.launch.preflight.facts import ClockOffset, ConnectAttempt, Facts
from weft.launch.preflight.judge import judge
from weft.launch.preflight.report import PreflightReport, render_troubles
from weft.launch.preflight.speeds import MeasuredLink, slow_pairs
from weft.topology.hostlist import HostEntry, parse_hosts

SECONDS_PER_LINK = 0.2

Measure = Literal["always", "hourly", "never"]
Progress = Callable[[int, int], None]  # rounds done, rounds in all


def check(
    hosts: LaunchConfig | str | Sequence[HostEntry],
    *,
    measure: Measure = "always",
    progress: Progress | None = None,
) -> PreflightReport:
    """Check some hosts: `"a,b"`, parsed hosts, or a whole request to run something."""
    if isinstance(hosts, LaunchConfig):
        config = hosts
    else:
        entries = parse_hosts(hosts) if isinstance(hosts, str) else tuple(hosts)
        config = LaunchConfig(command=Command("command", "true"), hosts=entries)
    from weft.launch.engines.ssh import SshHosts

    with closing(SshHosts(config)) as reached:
        return inspect(reached, config, measure=measure, progress=progress)


def check_before_run(
    hosts: Hosts, config: LaunchConfig, *, progress: Progress | None = None
) -> PreflightReport:
    """The same before a run, files included. `hosts` keeps what was learned and need not ask again."""
    return inspect(hosts, config, measure="hourly", files=True, progress=progress)


def require_ok(report: PreflightReport) -> None:
    """Raise unless a run may start."""
    if not report.ok:
        failed = replace(report, findings=report.failures)
        raise CheckError(
            "\n".join(render_troubles(failed))
            + f"\nevery check must pass before a run, got {len(report.failures)} that did not; nothing was started: "
            "mend this, or use --skip-checks"
        )


def progress_on(stream: TextIO) -> Progress | None:
    """Tells a person how far the measurement is; nothing where nobody watches."""
    if not stream.isatty():
        return None

    def show(done: int, total: int) -> None:
        text = f"weft: measuring links, round {done + 1} of {total}" if done < total else ""
        print(f"\r\x1b[2K{text}", end="", file=stream, flush=True)

    return show


def inspect(
    hosts: Hosts,
    config: LaunchConfig,
    *,
    measure: Measure,
    files: bool = False,
    progress: Progress | None = None,
) -> PreflightReport:
    """Find out all there is to know, and judge it."""
    facts = _Scout(hosts, config).explore(measure, files, progress)
    return PreflightReport(hosts=facts.hosts, findings=judge(facts), links=facts.links)


class _Scout:
    """Asks the agents. A host that fails to answer is noted once and asked no more."""

    def __init__(self, hosts: Hosts, config: LaunchConfig) -> None:
        self._hosts = hosts
        self._config = config
        self._crew = hosts.crew
        self._troubles: dict[str, str] = {}
        self._ports: dict[str, int] = {}  # where the agents answer probes

    def explore(self, measure: Measure, files: bool, progress: Progress | None) -> Facts:
        facts = self._meet(files)
        if len(facts.hosts) > 1 and facts.leader in facts.surveys:
            facts = self._find_leader(facts)
        if facts.address is not None:
            facts = self._knock(facts)
            if measure != "never" and not any(knock.error for knock in facts.knocks):
                facts = replace(facts, links=self._links(facts, measure, progress))
        surveys = {host: survey for host, survey in facts.surveys.items() if host not in self._troubles}
        self._hosts.remember(
            HostKnowledge(surveys=facts.surveys, reached=facts.reached or None, files_seen=files)
        )
        return replace(facts, surveys=surveys, troubles=dict(self._troubles))

    # -- who is there -----------------------------------------------------------------------------

    def _meet(self, files: bool) -> Facts:
        """Await the surveys, then ask what takes no time: clock, files, port."""
        config, leader = self._config, self._hosts.leader
        answers, self._troubles = self._crew.gather(
            dict.fromkeys(self._hosts.names, (HostSurveyed,)), timeout_s=ANSWER_TIMEOUT_S
        )
        script = config.command.target if files and config.command.kind == "script" else None
        cwd = str(config.cwd) if files else None
        # The clock first, for the next question may take a while and would blur it.
        questions: dict[str, list[AgentOrder]] = {
            host: [FindFiles(cwd, script), OpenProbePort()] for host in answers
        }
        if config.port is not None and leader in questions:
            questions[leader].append(FindPort(config.port))
        asked_s = time.time()
        heard = self._ask(questions)
        self._ports = {host: answer.of(ProbePortOpened).port for host, answer in heard.items()}
        found = {host: answer.of(FilesFound) for host, answer in heard.items()}
        return Facts(
            hosts=self._hosts.names,
            leader=leader,
            surveys={host: answers[host].of(HostSurveyed).survey for host in heard},
            rules=card_rules(config.interface, {**carried_variables(), **dict(config.env)}),
            clocks={
                host: _clock(asked_s, heard[host].heard_s[FilesFound], files_found.clock_s)
                for host, files_found in found.items()
            },
            missing={host: _missing(each, cwd, script) for host, each in found.items()} if files else None,
            port=config.port,
            port_free=heard[leader].of(PortFound).free
            if config.port is not None and leader in heard
            else True,
            allow_uneven=config.allow_uneven,
        )

    def _ask(self, questions: dict[str, list[AgentOrder]]) -> dict[str, HostAnswers]:
        living = {host: several for host, several in questions.items() if host not in self._troubles}
        heard, troubles = self._crew.inquire(living, timeout_s=ANSWER_TIMEOUT_S)
        self._troubles |= troubles
        return heard

    # -- who reaches whom -------------------------------------------------------------------------

    def _find_leader(self, facts: Facts) -> Facts:
        """Try the leader's best address, and those of cards that the user named; if need be, all."""
        leader = facts.surveys[facts.leader]
        try:
            tried = candidates(leader, self._config.interface)
        except ConnectError:  # no such card there; the judges will say so, and name one that leads there
            tried = candidates(leader, None)
        named = [card for rule in facts.rules if not rule.but for card in rule.cards(leader.host)]
        first = tuple(dict.fromkeys((*tried[:1], *(a for card in named for a in card.addresses))))
        reached = self._reach(facts, first)
        address = _common(facts.leader, tried, reached)
        if address is None and (rest := [address for address in tried if address not in first]):
            more = self._reach(facts, rest)
            reached = {host: (*reaches, *more.get(host, ())) for host, reaches in reached.items()}
            address = _common(facts.leader, tried, reached)
        return replace(facts, tried=tried, reached=reached, address=address)

    def _reach(self, facts: Facts, addresses: Iterable[str]) -> dict[str, tuple[Reach, ...]]:
        targets = [(facts.leader, address) for address in addresses]
        asked = {host: targets for host in self._ports if host != facts.leader}
        return {
            host: tuple(
                Reach(address=r.address, source=r.source, seen_as=r.seen_as, error=_trouble(r))
                for r in results
            )
            for host, results in self._try(asked).items()
        }

    def _knock(self, facts: Facts) -> Facts:
        """Let every host connect to every other. One behind NAT cannot be called, which is said already."""
        homes = self._homes(facts)
        asked = {
            host: [(other, address) for other, address in homes.items() if other not in (host, facts.leader)]
            for host in homes
        }
        knocks = [
            ConnectAttempt(host, facts.leader, facts.address or "") for host in homes if host != facts.leader
        ]
        for host, results in self._try(asked).items():
            knocks += [ConnectAttempt(host, r.host, r.address, r.error) for r in results]
        return replace(facts, knocks=tuple(knocks))

    def _try(self, asked: dict[str, list[tuple[str, str]]]) -> dict[str, tuple[ProbeResult, ...]]:
        """Let each host connect to some (host, address), all at once."""
        questions: dict[str, list[AgentOrder]] = {}
        for host, targets in asked.items():
            if targets:
                probes = tuple(ProbeTarget(other, address, self._ports[other]) for other, address in targets)
                questions[host] = [ReachTargets(probes, REACH_TIMEOUT_S)]
        return {host: answer.of(TargetsReached).results for host, answer in self._ask(questions).items()}

    def _homes(self, facts: Facts) -> dict[str, str]:
        """The address at which each host is met by the others."""
        homes = {}
        for host in (host for host in facts.surveys if host not in self._troubles):
            route = facts.route(host)
            address = facts.address if host == facts.leader else route.source if route else None
            if address and not facts.translated(host):
                homes[host] = address
        return homes

    # -- how fast ---------------------------------------------------------------------------------

    def _links(self, facts: Facts, measure: Measure, progress: Progress | None) -> tuple[MeasuredLink, ...]:
        """Every link, measured now or within the last hour. A result with a failure in it is not kept."""
        homes = self._homes(facts)
        key = linkcache.fingerprint([_identity(facts, host, address) for host, address in homes.items()])
        folder = cache_folder("links")
        if measure == "hourly" and (known := linkcache.load(key, folder, time.time())) is not None:
            return known
        links = self._measure(homes, progress)
        if any(link.error for link in links):
            linkcache.forget(key, folder)
        else:
            linkcache.save(key, links, folder, time.time())
        return links

    def _measure(self, homes: dict[str, str], progress: Progress | None) -> tuple[MeasuredLink, ...]:
        """Measure in rounds in which each host has one partner: no card is shared, H hosts take H - 1 rounds."""
        names = tuple(homes)
        there = [[(names[a], names[b]) for a, b in pairs] for pairs in rounds(len(names))]
        back = [[(b, a) for a, b in pairs] for pairs in there]
        # Both directions at once, as in training.
        links = self._rounds(homes, [[*a, *b] for a, b in zip(there, back, strict=True)], progress)
        # A busy moment is not a slow link: what looks slow gets a second chance, alone.
        slow = slow_pairs(links.values())
        again = [[pair for pair in pairs if pair in slow] for pairs in (*there, *back)]
        for pair, link in self._rounds(homes, [pairs for pairs in again if pairs], progress).items():
            links[pair] = max(links[pair], link, key=lambda link: link.mbps or 0.0)
        return tuple(links[pair] for pair in permutations(names, 2))

    def _rounds(
        self, homes: dict[str, str], schedule: list[list[tuple[str, str]]], progress: Progress | None
    ) -> dict[tuple[str, str], MeasuredLink]:
        """Measure (source, target) pairs, those of a round at once."""
        links: dict[tuple[str, str], MeasuredLink] = {}
        for number, pairs in enumerate(schedule):
            if progress is not None:
                progress(number, len(schedule))
            there: dict[str, list[AgentOrder]] = {
                a: [MeasureLink(homes[b], self._ports[b], SECONDS_PER_LINK)]
                for a, b in pairs
                if b not in self._troubles
            }
            heard = self._ask(there)
            found = {
                source: heard[source].of(LinkMeasured) if source in heard else _LOST for source, _ in pairs
            }
            links |= {(a, b): _link(a, b, found[a], found.get(b, found[a])) for a, b in pairs}
        if progress is not None and schedule:
            progress(len(schedule), len(schedule))
        return links


_LOST = LinkMeasured(error="a host fell silent")


def _link(source: str, target: str, there: LinkMeasured, back: LinkMeasured) -> MeasuredLink:
    # Both directions start together. The first to start pings while the line is still empty, so the shorter
    # round trip is the true one.
    trips = [found.rtt_ms for found in (there, back) if found.rtt_ms is not None]
    return MeasuredLink(
        source=source,
        target=target,
        mbps=there.mbps,
        rtt_ms=min(trips) if trips else None,
        error=there.error,
    )


def _clock(asked_s: float, heard_s: float, clock_s: float) -> ClockOffset:
    """A host reads its clock somewhere between question and answer."""
    return ClockOffset(clock_s - (asked_s + heard_s) / 2, (heard_s - asked_s) / 2)


def _missing(found: FilesFound, cwd: str | None, script: str | None) -> tuple[str, ...]:
    if not found.cwd:
        return (str(cwd),)
    return () if found.script else (str(script),)


def _trouble(result: ProbeResult) -> str | None:
    """Return why a try to connect did not lead to the leader."""
    if result.error is None and result.source == result.address:
        return "the host has this address too"  # that of a bridge for containers, say
    return result.error


def _common(leader: str, tried: Sequence[str], reached: dict[str, tuple[Reach, ...]]) -> str | None:
    try:
        return choose_address(leader, tried, reached)
    except ConnectError:  # the judges say it host by host
        return None


def _identity(facts: Facts, host: str, address: str) -> tuple[object, ...]:
    card = facts.card(host)
    return (host, address, *((card.name, card.speed_mbps, card.mtu) if card else ()))
