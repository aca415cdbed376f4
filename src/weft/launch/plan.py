"""The launch plan: who runs where, on which cores, over which card, with which environment.

`make_plan` is pure: what the user asked for and what the hosts said go in, a frozen plan comes out.
`--dry-run` prints it, the run directory keeps it, the engines carry it out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from weft.collectives.choices import parse_mode
from weft.errors import TopologyError, UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.environment import common_variables, worker_variables
from weft.launch.masking import masked
from weft.launch.sites import HostSite, workers_of_sites
from weft.topology.alike import verify_alike
from weft.topology.dimensions import Dimensions, infer_dimensions
from weft.topology.host import Host
from weft.topology.hostlist import MOST_WORKERS, HostEntry
from weft.topology.placement import Placement, place, place_on
from weft.topology.rankfile import Rankfile, RankLine, RankOrder, deal, rankfile_for


@dataclass(frozen=True, kw_only=True)
class WorkerPlan:
    """One worker: its rank and its place."""

    rank: int
    local_rank: int
    placement: Placement | None
    env: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """One host and its workers, in the order of their local ranks."""

    name: str
    address: str
    interface: str | None
    workers: tuple[WorkerPlan, ...]


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """A whole run, before it starts."""

    name: str
    engine: str
    command: Command
    argv: tuple[str, ...]
    cwd: str
    python: str
    sites: tuple[HostSite, ...]
    hosts: tuple[HostPlan, ...]
    leader: str
    port: int
    dimensions: Dimensions
    rank_order: RankOrder
    env: tuple[tuple[str, str], ...]  # the same for every worker
    max_restarts: int
    rankfile: Rankfile | None
    memory_bytes: int = 0  # that each worker may hold; 0: as much as there is
    given_env: tuple[str, ...] = ()  # the variables that came with --env; their values are shown to nobody

    @property
    def world_size(self) -> int:
        return sum(len(host.workers) for host in self.hosts)

    @property
    def leader_host(self) -> str:
        return self.host_of(0)

    def host_of(self, rank: int) -> str:
        return self._hosts_by_rank[rank]

    @cached_property
    def _hosts_by_rank(self) -> dict[int, str]:
        return {worker.rank: host.name for host in self.hosts for worker in host.workers}

    def to_json(self) -> dict[str, Any]:
        """Return the plan as data to print or to keep; values that may be secret are masked."""
        data = asdict(self)
        data["sites"] = [site.named.to_json() if site.host else {"name": site.name} for site in self.sites]
        data["env"] = masked(self.env, self.given_env)
        data["dimensions"] = str(self.dimensions)
        data["world_size"] = self.world_size
        for host in data["hosts"]:
            for worker in host["workers"]:
                worker["env"] = masked(worker["env"], self.given_env)
        return data


def make_plan(
    config: LaunchConfig,
    sites: Sequence[HostSite],
    *,
    engine: str,
    port: int,
    python: str,
    carried: Mapping[str, str] | None = None,
) -> LaunchPlan:
    """Decide the whole run."""
    counts, slots = workers_of_sites(config, sites)
    if sum(counts) > MOST_WORKERS:
        raise UsageError(
            f"a run must have at most {MOST_WORKERS} workers, got {sum(counts)} on {len(counts)} hosts; "
            "name fewer hosts or lower their counts"
        )
    surveyed = [site.named for site in sites if site.host is not None]
    if len(surveyed) > 1:
        verify_alike(surveyed, allow_uneven=config.allow_uneven)
    dimensions = infer_dimensions(
        counts,
        accelerators=config.accelerators,
        hosts_per_rack=config.hosts_per_rack,
        racks=config.racks,
        aisles=config.aisles,
        allow_uneven=config.allow_uneven or config.rankfile is not None,
        names=[site.name for site in sites],
    )
    if config.mode is not None:
        parse_mode(config.mode).check(dimensions.world)
    ranks = _ranks(config, sites, counts)
    leader = next(site.address for site, dealt in zip(sites, ranks, strict=True) if 0 in dealt)
    common = common_variables(config, carried or {}, leader=leader, port=port, dimensions=dimensions)
    lines = slots or (None,) * len(sites)
    hosts = tuple(
        _host_plan(config, sites, index, dealt, lines[index], dimensions, dict(common))
        for index, dealt in enumerate(ranks)
    )
    return LaunchPlan(
        name=config.command.name,
        engine=engine,
        command=config.command,
        argv=config.command.argv(python),
        cwd=str(config.cwd),
        python=python,
        sites=tuple(sites),
        hosts=hosts,
        leader=leader,
        port=port,
        dimensions=dimensions,
        rank_order=config.rank_order,
        env=common,
        max_restarts=config.max_restarts,
        rankfile=_rankfile(config, sites, counts, dimensions),
        memory_bytes=config.memory_bytes or 0,
        given_env=tuple(name for name, _ in config.env if not name.startswith("WEFT_")),
    )


def _host_plan(
    config: LaunchConfig,
    sites: Sequence[HostSite],
    index: int,
    ranks: Sequence[int],
    lines: tuple[RankLine, ...] | None,
    dimensions: Dimensions,
    common: Mapping[str, str],
) -> HostPlan:
    """Return the plan of the host at an index: its workers with their ranks, places and variables."""
    site, count = sites[index], len(ranks)
    entry = next((entry for entry in reversed(config.hosts) if entry.name == site.name), None)
    placements = _placements(site, count, lines, entry) if config.pin else (None,) * count
    workers = []
    for local, (rank, placement) in enumerate(zip(ranks, placements, strict=True)):
        variables = worker_variables(
            rank=rank,
            world=dimensions.world,
            local_rank=local,
            local_world=count,
            host=site.name,
            host_index=index,
            host_count=len(sites),
            placement=placement,
            interface=site.interface,
            place=dimensions.place_of(index) if dimensions.has_racks else None,
            chosen=common,
        )
        env = variables + _visible_devices(entry, local, count)
        workers.append(WorkerPlan(rank=rank, local_rank=local, placement=placement, env=env))
    return HostPlan(name=site.name, address=site.address, interface=site.interface, workers=tuple(workers))


def _placements(
    site: HostSite, count: int, lines: tuple[RankLine, ...] | None, entry: HostEntry | None
) -> tuple[Placement, ...] | tuple[None, ...]:
    if site.host is None:
        return (None,) * count
    if entry is not None and entry.cpus:
        return place_on(site.named, count, entry.cpus)
    if lines is None:
        return place(site.host, count)
    return tuple(_placed_by(site.host, line, local) for local, line in enumerate(lines))


def _visible_devices(entry: HostEntry | None, local: int, workers: int) -> tuple[tuple[str, str], ...]:
    """Return the variable that shows a worker the devices of its run, where only some of a host's are the run's.

    With a device for each worker all of them see all, as under torchrun, and a worker takes that of its local rank.
    With several for each, a worker sees its own.
    """
    if entry is None or entry.gpus is None:
        return ()
    each, rest = divmod(len(entry.gpus), workers)
    if rest and each:
        raise UsageError(
            f"the gpus of a host must divide evenly over its workers, got {len(entry.gpus)} for {workers} on "
            f"{entry.name}; give each worker the same number"
        )
    mine = entry.gpus[each * local : each * (local + 1)] if each > 1 else entry.gpus
    return (("CUDA_VISIBLE_DEVICES", ",".join(map(str, mine))),)


def _placed_by(host: Host, line: RankLine, local: int) -> Placement:
    """The place a rank file names, checked against the host that is there."""
    cores = [core for core in host.cores_of(line.socket) if line.first_core <= core.index <= line.last_core]
    wanted = line.last_core - line.first_core + 1
    if len(cores) != wanted:
        there = ", ".join(f"{socket}:0-{len(host.cores_of(socket)) - 1}" for socket in host.sockets)
        raise TopologyError(
            f"the rank file must name cores that exist, got slot={line.socket}:{line.first_core}-{line.last_core} "
            f"for rank {line.rank} on {host.name} which has {there}; mend that line"
        )
    return Placement(
        socket=line.socket,
        first_core=line.first_core,
        last_core=line.last_core,
        cpus=tuple(sorted(cpu for core in cores for cpu in core.cpus)),
        numa=tuple(sorted({core.numa for core in cores})),
        accelerator=host.accelerators[local].index if local < len(host.accelerators) else None,
    )


def _ranks(
    config: LaunchConfig, sites: Sequence[HostSite], counts: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    if config.rankfile is not None:
        return tuple(
            tuple(sorted(line.rank for line in config.rankfile.lines if line.host == site.name))
            for site in sites
        )
    return deal([(site.name, count) for site, count in zip(sites, counts, strict=True)], config.rank_order)


def _rankfile(
    config: LaunchConfig, sites: Sequence[HostSite], counts: Sequence[int], dimensions: Dimensions
) -> Rankfile | None:
    """The plan as a rank file; None where the cores are not known."""
    if config.rankfile is not None:
        return config.rankfile
    hosts = [(site.named, count) for site, count in zip(sites, counts, strict=True) if site.host is not None]
    return (
        rankfile_for(hosts, config.rank_order, dimensions)
        if len(hosts) == len(sites) and config.pin and not any(entry.cpus for entry in config.hosts)
        else None
    )
