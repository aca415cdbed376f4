"""Decisions of the elastic launcher, pure: from the records of the hosts, which to call, to dismiss, to give up."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set

from weft.elastic.launcher.recruits import HostRecord, HostState
from weft.errors import ConnectError
from weft.text import plural
from weft.topology.hostlist import HostEntry


def troubles_of(awaited: Iterable[HostRecord], *, answer_s: float) -> list[str]:
    """Say why hosts that were awaited at the start do not listen."""
    return [
        host.trouble or f"{host.name} must answer within {answer_s:g} s, got silence"
        for host in awaited
        if host.state != HostState.LISTENING
    ]


def require_enough(here: Sequence[HostRecord], least: int, troubles: Sequence[str]) -> None:
    """Raise unless the hosts that listen have at least the workers with which a run may begin."""
    if not here:
        raise ConnectError("\n".join(troubles))
    slots = sum(len(host.plan.workers) for host in here if host.plan is not None)
    if slots < least:
        raise ConnectError(
            f"an elastic run must have at least {least} workers to begin, got {slots} on "
            f"{', '.join(host.name for host in here)}; name more hosts or lower MIN"
            + "".join(f"\n{trouble}" for trouble in troubles)
        )


def hosts_to_call(hosts: Iterable[HostRecord], wanted: Set[str], now: float) -> list[HostRecord]:
    """Return the hosts to call again: those that are away and due, and those that left and are wanted again."""
    return [
        host
        for host in hosts
        if (host.state == HostState.AWAY and (host.name in wanted or host.witness) and now >= host.retry_at)
        or (host.state == HostState.GONE and host.dismissed and host.name in wanted)
    ]


def hosts_to_dismiss(hosts: Mapping[str, HostRecord], wanted: Set[str], least: int) -> list[HostRecord]:
    """Return the hosts that are no longer wanted, once there are enough workers on the others."""
    if sum(hosts[name].workers for name in wanted & hosts.keys()) < least:
        return []
    return [
        host
        for host in hosts.values()
        if host.name not in wanted and host.state == HostState.RUNNING and not host.witness
    ]


def hosts_to_resize(hosts: Mapping[str, HostRecord], wanted: Sequence[HostEntry]) -> list[HostRecord]:
    """Return the hosts that take part and are to have another number of workers, or other cores, than planned."""
    return [
        hosts[entry.name]
        for entry in wanted
        if entry.name in hosts
        and hosts[entry.name].state == HostState.RUNNING
        and hosts[entry.name].site is not None
        and hosts[entry.name].entry != entry
    ]


def too_few_slots(
    wanted: Sequence[HostEntry], *, least: int, most: int, per_host: int | None = None
) -> str | None:
    """Say that hosts have too few workers for a run of `least` to `most`; None if they are enough, or not counted.

    `per_host`: the workers of a host for which no number is named; None if only the host knows.
    """
    counts = [entry.workers or per_host for entry in wanted]
    known = [count for count in counts if count is not None]
    if not wanted or len(known) < len(counts) or sum(known) >= least:
        return None
    named = ",".join(f"{entry.name}:{count}" for entry, count in zip(wanted, known, strict=True))
    return (
        f"a run must keep at least {plural(least, 'worker')} (--elastic {least}:{most}), got {sum(known)} "
        f"with {named}; name more workers or hosts, or pause the run"
    )


def are_all_replaced(hosts: Iterable[HostRecord], voters: Collection[str]) -> bool:
    """Return whether all agents that had the run are dead: every host is reached, and its agent is another one.

    `voters`: the agents that decide on the view after the newest one that is known.
    """
    ran = [host for host in hosts if host.lives and not host.witness and host.state != HostState.GONE]
    reached = all(host.state == HostState.RUNNING and host.view >= 0 for host in ran)
    return bool(ran) and reached and not any(host.agent in voters for host in ran)


def have_all_left(hosts: Iterable[HostRecord], wanted: Set[str]) -> bool:
    """Return whether every agent was asked to leave and has left, and no host is called any more."""
    return all(
        host.state == HostState.GONE or (host.state == HostState.AWAY and host.name not in wanted)
        for host in hosts
        if not host.witness
    )


def are_all_ended(hosts: Iterable[HostRecord]) -> bool:
    """Return whether no agent takes part any more, or is about to."""
    taking_part = (HostState.RUNNING, HostState.LEAVING, HostState.LISTENING)
    return all(host.state not in taking_part for host in hosts)
