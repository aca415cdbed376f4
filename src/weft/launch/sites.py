"""The hosts of a run as the planner sees them, and how many workers each of them gets. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from weft.errors import TopologyError, UsageError
from weft.launch.config import LaunchConfig
from weft.text import plural
from weft.topology.host import Host
from weft.topology.rankfile import RankLine


@dataclass(frozen=True, kw_only=True)
class HostSite:
    """One host as the planner sees it: how to call it, what it is, how it reaches the leader."""

    name: str
    host: Host | None  # None: not surveyed (a batch script is written before its hosts are known)
    address: str
    interface: str | None = None
    workers: int | None = None  # how many a batch system has granted it

    @property
    def named(self) -> Host:
        """The host under the name the caller reaches it by; what it calls itself may be another."""
        assert self.host is not None
        return replace(self.host, name=self.name)


def workers_of_sites(
    config: LaunchConfig, sites: Sequence[HostSite]
) -> tuple[tuple[int, ...], tuple[tuple[RankLine, ...], ...] | None]:
    """Return how many workers each host gets, and their lines where a rank file names them."""
    if config.rankfile is not None:
        return _from_rankfile(config, sites)
    named = {entry.name: entry.workers for entry in config.hosts}
    if config.workers is not None:
        return _share_out(config, config.workers, sites, named), None
    return tuple(
        named.get(site.name) or site.workers or _default_workers(config, site) for site in sites
    ), None


def _share_out(
    config: LaunchConfig, workers: int, sites: Sequence[HostSite], named: Mapping[str, int | None]
) -> tuple[int, ...]:
    """Share a number of workers over the hosts: by their slots if all have some, else evenly."""
    slots = [named.get(site.name) for site in sites]
    given = [slot for slot in slots if slot is not None]
    if len(given) == len(slots) and given:
        if sum(given) < workers:
            raise UsageError(
                f"the hosts must have room for all workers, got -n {workers} for {sum(given)} slots "
                f"({' + '.join(map(str, given))}); add hosts or raise their counts"
            )
        counts: list[int] = []
        for slot in given:
            counts.append(min(slot, workers - sum(counts)))
        if 0 in counts:
            idle = ", ".join(site.name for site, count in zip(sites, counts, strict=True) if not count)
            raise UsageError(
                f"every host must get a worker, got -n {workers} which leaves none for {idle}; drop it"
            )
        return tuple(counts)
    if workers < len(sites):
        raise UsageError(
            f"every host must get a worker, got -n {workers} for {len(sites)} hosts; drop hosts or raise -n"
        )
    share, rest = divmod(workers, len(sites))
    if rest and not config.allow_uneven:
        raise TopologyError(
            f"the workers must divide evenly over the hosts, got {workers} workers / {len(sites)} hosts = "
            f"{share} rest {rest}; use -n {share * len(sites)} or --allow-uneven"
        )
    return tuple(share + (index < rest) for index in range(len(sites)))


def _default_workers(config: LaunchConfig, site: HostSite) -> int:
    """Return a worker for each accelerator, or one for the host, unless `per_host` says otherwise."""
    accelerators = len(site.host.accelerators) if site.host else 0
    cores = len(site.host.cores) if site.host else 1
    match config.per_host:
        case int(count):
            return count
        case "cpu":
            return cores
        case "gpu":
            if not accelerators:
                raise UsageError(
                    f"--per-host gpu needs an accelerator on every host, got none on {site.name}; "
                    "use --per-host auto"
                )
            return accelerators
        case "auto":
            return accelerators or cores
        case None:
            return config.accelerators or accelerators or 1


def _from_rankfile(
    config: LaunchConfig, sites: Sequence[HostSite]
) -> tuple[tuple[int, ...], tuple[tuple[RankLine, ...], ...]]:
    assert config.rankfile is not None
    lines = tuple(
        tuple(
            sorted(
                (line for line in config.rankfile.lines if line.host == site.name), key=lambda line: line.rank
            )
        )
        for site in sites
    )
    counts = tuple(map(len, lines))
    total = len(config.rankfile.lines)
    if config.workers is not None and config.workers != total:
        raise UsageError(
            f"-n must match the rank file, got -n {config.workers} and {plural(total, 'rank')}; drop -n"
        )
    return counts, lines
