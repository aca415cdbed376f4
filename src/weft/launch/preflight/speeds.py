"""The measured links between hosts: which are slow, whose fault it likely is, and the table a person reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

SLOW = 0.5  # a link with less than this share of the usual speed is slow


@dataclass(frozen=True, kw_only=True)
class MeasuredLink:
    """One direction between two hosts, measured while the other direction was busy too, as in training."""

    source: str
    target: str
    mbps: float | None = None
    rtt_ms: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Slow:
    """A link (source, target) that is slow, or a host all of whose links are."""

    hosts: tuple[str, ...]
    mbps: float
    usual_mbps: float


def slow_pairs(links: Collection[MeasuredLink]) -> frozenset[tuple[str, str]]:
    """The (source, target) of every link that is slow beside the others."""
    speeds = _speeds(links)
    usual = usual_mbps(speeds)
    return frozenset(pair for pair, mbps in speeds.items() if mbps < SLOW * usual)


def slow_links(links: Collection[MeasuredLink]) -> tuple[Slow, ...]:
    """The slow hosts, then the slow links that no slow host explains."""
    speeds, slow = _speeds(links), slow_pairs(links)
    usual = usual_mbps(speeds)
    found = []
    for host in dict.fromkeys(host for pair in speeds for host in pair):
        ends = [[pair for pair in speeds if pair[end] == host] for end in (0, 1)]
        # One link does not tell which of its ends is at fault.
        if any(len(pairs) > 1 and slow.issuperset(pairs) for pairs in ends):
            found.append(Slow((host,), _middle(speeds[pair] for pairs in ends for pair in pairs), usual))
    culprits = {host for slow_host in found for host in slow_host.hosts}
    rest = [pair for pair in speeds if pair in slow and culprits.isdisjoint(pair)]
    return (*found, *(Slow(pair, speeds[pair], usual) for pair in rest))


def _speeds(links: Collection[MeasuredLink]) -> dict[tuple[str, str], float]:
    return {(link.source, link.target): link.mbps for link in links if link.mbps is not None}


def usual_mbps(speeds: dict[tuple[str, str], float]) -> float:
    """The median over hosts of each one's best link.

    The median over links would not do: of the links of three hosts, one bad host spoils two thirds.
    """
    best: dict[str, float] = {}
    for pair, mbps in speeds.items():
        for host in pair:
            best[host] = max(mbps, best.get(host, 0.0))
    return _middle(best.values()) if best else 0.0


def _middle(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def render_speeds(hosts: Sequence[str], links: Collection[MeasuredLink]) -> str:
    """Bandwidths as a table, from the host of the row to the host of the column."""
    known = [link.mbps for link in links if link.mbps is not None]
    unit, name = (1000.0, "Gbit/s") if known and max(known) >= 1000 else (1.0, "Mbit/s")
    digits = 2 if unit > 1 else 0
    cells = {
        (link.source, link.target): f"{link.mbps / unit:.{digits}f}"
        for link in links
        if link.mbps is not None
    }
    return _render(f"{name}, from row to column", hosts, cells)


def render_round_trips(hosts: Sequence[str], links: Collection[MeasuredLink]) -> str:
    cells = {(link.source, link.target): f"{link.rtt_ms:.2f}" for link in links if link.rtt_ms is not None}
    return _render("round trip in ms", hosts, cells)


def _render(title: str, hosts: Sequence[str], cells: dict[tuple[str, str], str]) -> str:
    left = max(map(len, hosts))
    widths = {
        host: max(4, len(host), *(len(cells.get((other, host), "")) for other in hosts)) for host in hosts
    }
    lines = [title, f"  {'':{left}}" + "".join(f"  {host:>{widths[host]}}" for host in hosts)]
    for source in hosts:
        row = (
            f"  {'-' if source == target else cells.get((source, target), '?'):>{widths[target]}}"
            for target in hosts
        )
        lines.append(f"  {source:<{left}}" + "".join(row))
    return "\n".join(lines)
