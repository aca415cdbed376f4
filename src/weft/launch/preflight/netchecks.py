"""Judgements about the network: the port, the way to the leader, the cards, every pair and its speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from weft.launch.preflight.cardrule import INTERFACE, NCCL, CardRule
from weft.launch.preflight.facts import CheckFinding, Facts, Status, most_common
from weft.launch.preflight.speeds import slow_links
from weft.text import format_speed


def port(facts: Facts) -> Iterator[CheckFinding]:
    if facts.port is None or facts.leader not in facts.surveys:
        return
    if facts.port_free:
        yield CheckFinding(name="port", hosts=(facts.leader,), got=f"{facts.port} is free")
    else:
        yield CheckFinding(
            name="port",
            hosts=(facts.leader,),
            status="fail",
            got=f"the port must be free on the leader {facts.leader}, got {facts.port} which is in use",
            fix="leave --port out to have one picked",
        )


def leader(facts: Facts) -> Iterator[CheckFinding]:
    """Every host reaches one same address of the leader, and is seen there as what it is."""
    if len(facts.hosts) > 1 and facts.leader in facts.surveys and not facts.tried:
        yield CheckFinding(
            name="leader",
            hosts=(facts.leader,),
            status="fail",
            got=f"the leader {facts.leader} must have a network card that is up, got only loopback",
            fix="check `ip addr` there",
        )
        return
    for host, reaches in facts.reached.items():
        good = [reach.address for reach in reaches if not reach.error]
        route = facts.route(host)
        if route is None:
            if facts.tried[0] in good:  # another host is why there is no common address
                continue
            errors = ", ".join(f"{reach.address}: {reach.error}" for reach in reaches if reach.error)
            yield CheckFinding(
                name="leader",
                hosts=(host,),
                status="fail",
                got=f"every host must reach the leader {facts.leader} at one same address, got {errors}"
                + (f" (it reaches {', '.join(good)})" if good else ""),
                fix="open the firewall between them, or name a card that they share with --interface",
            )
        elif facts.translated(host):
            yield CheckFinding(
                name="leader",
                hosts=(host,),
                status="fail",
                got=f"workers must connect to each other directly, got {host} with address {route.source} "
                f"that {facts.leader} sees as {route.seen_as}: it is behind address translation (NAT)",
                fix="put the hosts on one network (a VPN will do), or containers on the network of their host",
            )
        else:
            yield CheckFinding(name="leader", hosts=(host,), got=f"{facts.leader} reached at {facts.address}")


def cards(facts: Facts) -> Iterator[CheckFinding]:
    """The card each host will use; those of one network should be of one kind."""
    cards = {host: card for host in facts.surveys if (card := facts.card(host)) is not None}
    usual_mtu = most_common((card.mtu for card in cards.values()), 0)
    usual_speed = most_common((card.speed_mbps for card in cards.values()), None)
    for host, card in cards.items():
        speed = f", {format_speed(card.speed_mbps)}" if card.speed_mbps else ""
        finding = CheckFinding(name="card", hosts=(host,), got=f"{card.name}{speed}, MTU {card.mtu}")
        if card.mtu != usual_mtu:
            yield replace(
                finding,
                status="warn",
                got=f"{card.name} must have the same MTU on every host, got {card.mtu} where others "
                f"have {usual_mtu}",
                fix=f"there: ip link set {card.name} mtu {usual_mtu}",
            )
        elif card.speed_mbps and usual_speed and card.speed_mbps < usual_speed:
            yield replace(
                finding,
                status="warn",
                got=f"{card.name} must be as fast as on the other hosts, got {format_speed(card.speed_mbps)} "
                f"where others have {format_speed(usual_speed)}",
                fix="check its cable and its port of the switch",
            )
        else:
            yield finding


def named_cards(facts: Facts) -> Iterator[CheckFinding]:
    """Cards that the user named must exist, and lead to the leader."""
    for rule in facts.rules:
        for host in facts.surveys if facts.reached else ():
            got = _wrong_card(facts, rule, host)
            if got is None:
                yield CheckFinding(name="named card", hosts=(host,), got=f"{rule} leads to the leader")
                continue
            right = facts.card(host)
            yield CheckFinding(
                name="named card",
                hosts=(host,),
                status=_weight(facts, rule, host),
                got=got,
                fix=(f"the card to use is {right.name}: " if right else "")
                + f"leave {rule.setting} out and weft names the right card to every worker",
            )


def _wrong_card(facts: Facts, rule: CardRule, host: str) -> str | None:
    """Return what is wrong with a choice of cards on a host, if anything."""
    description = facts.surveys[host].host
    chosen = {card.name for card in rule.cards(description)}
    leading = _leading(facts, host)
    # NCCL takes what it finds of the cards it may use; Gloo takes every card that was named.
    any_will_do = rule.setting == NCCL
    if not chosen or not (any_will_do or chosen.issuperset(rule.names)):
        there = ", ".join(card.name for card in description.cards if card.up and not card.loopback) or "none"
        return f"{rule} must be a card that is up, got none such among {there}"
    if chosen & leading if any_will_do else chosen <= leading:
        return None
    return f"{rule} must lead to the leader {facts.leader}, got a card that does not"


def _leading(facts: Facts, host: str) -> set[str]:
    """The cards of a host over which it, or for the leader everyone else, reaches the leader."""
    if host == facts.leader:
        everyone = [{r.address for r in reaches if not r.error} for reaches in facts.reached.values()]
        addresses = set.intersection(*everyone) if everyone else set()
    else:
        addresses = {r.source for r in facts.reached.get(host, ()) if not r.error and r.source}
    description = facts.surveys[host].host
    return {card.name for address in addresses if (card := description.card_with(address))}


def _weight(facts: Facts, rule: CardRule, host: str) -> Status:
    """Variables reach the workers as they are. Our own option only chooses among the leader's addresses."""
    if rule.setting == INTERFACE:
        return "fail" if host == facts.leader else "warn"
    if rule.setting == NCCL:
        return "fail" if facts.surveys[host].host.accelerators else "warn"
    return "fail"


def connects(facts: Facts) -> Iterator[CheckFinding]:
    fix = "open the firewall there for the other hosts: workers listen on ports that the system picks"
    failed = {(knock.source, knock.target): knock for knock in facts.knocks if knock.error}
    tried = {(knock.source, knock.target) for knock in facts.knocks}
    cut_off = set()
    for host in facts.surveys:
        towards = {pair for pair in tried if pair[1] == host}
        if len(towards) > 1 and towards <= failed.keys():
            cut_off.add(host)
            knock = failed[min(towards)]
            yield CheckFinding(
                name="connects",
                hosts=(host,),
                status="fail",
                got=f"every host must connect to {host} ({knock.address}), got none that can: {knock.error}",
                fix=fix,
            )
    for host in facts.surveys:
        outgoing = {pair for pair in tried if pair[0] == host}
        for pair in sorted(outgoing & failed.keys()):
            if pair[1] not in cut_off:
                yield CheckFinding(
                    name="connects",
                    hosts=pair,
                    status="fail",
                    got=f"{host} must connect to {pair[1]} ({failed[pair].address}), got: {failed[pair].error}",
                    fix=fix,
                )
        if outgoing and not outgoing & failed.keys():
            yield CheckFinding(name="connects", hosts=(host,), got="to every other host")


def links(facts: Facts) -> Iterator[CheckFinding]:
    for link in facts.links:
        # The links of a host that was lost meanwhile say nothing new.
        if link.error and facts.troubles.keys().isdisjoint((link.source, link.target)):
            yield CheckFinding(
                name="links",
                hosts=(link.source, link.target),
                status="fail",
                got=f"the link from {link.source} to {link.target} must carry data, got: {link.error}",
                fix="check MTU and firewall between them: small packets pass, a stream does not",
            )
    for slow in slow_links(facts.links):
        got = f"{format_speed(slow.mbps)} where {format_speed(slow.usual_mbps)} is usual"
        one = len(slow.hosts) == 1
        yield CheckFinding(
            name="links",
            hosts=slow.hosts,
            status="warn",
            got=(
                f"{slow.hosts[0]} must be as fast as the others, got links of {got}"
                if one
                else f"the link from {slow.hosts[0]} to {slow.hosts[1]} must be as fast as the others, got {got}"
            ),
            fix=(
                f"check the cable, the card and the switch port of {slow.hosts[0]}"
                if one
                else "check what lies between these two, and what else uses it"
            ),
        )
    speeds = [link.mbps for link in facts.links if link.mbps is not None]
    trips = [link.rtt_ms for link in facts.links if link.rtt_ms is not None]
    if speeds and trips:
        got = f"{_span(format_speed(min(speeds)), format_speed(max(speeds)))}, round trip "
        yield CheckFinding(name="links", got=got + _span(f"{min(trips):.2f} ms", f"{max(trips):.2f} ms"))


def _span(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
