"""The launch plan: who runs where, on which cores, over which card, with which environment.

`make_plan` is pure: what the user asked for and what the hosts said go in, a frozen plan comes out.
`--dry-run` prints it, the run directory keeps it, the engines carry it out.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from weft.collectives.choices import parse_mode
from weft.errors import TopologyError, UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.environment import common_variables, worker_variables
from weft.launch.masking import masked
from weft.text import plural
from weft.topology.alike import verify_alike
from weft.topology.cpulist import format_cpulist
from weft.topology.dimensions import Dimensions, infer_dimensions
from weft.topology.host import Host
from weft.topology.hostlist import MOST_WORKERS, HostEntry
from weft.topology.placement import Placement, place, place_on
from weft.topology.rankfile import Rankfile, RankLine, RankOrder, deal, rankfile_for


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
    counts, slots = _who_runs_where(config, sites)
    if sum(counts) > MOST_WORKERS:
        raise UsageError(
            f"a run must have at most {MOST_WORKERS} workers, got {sum(counts)} on {len(counts)} hosts; "
            "name fewer hosts or lower their counts"
        )
    hosts = [site.named for site in sites if site.host is not None]
    if len(hosts) > 1:
        verify_alike(hosts, allow_uneven=config.allow_uneven)
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
    entries = {entry.name: entry for entry in config.hosts}
    placements = [
        _placements(site, count, slots[index] if slots else None, entries.get(site.name))
        if config.pin
        else (None,) * count
        for index, (site, count) in enumerate(zip(sites, counts, strict=True))
    ]
    ranks = _ranks(config, sites, counts)
    world = sum(counts)
    leader = next(site.address for site, dealt in zip(sites, ranks, strict=True) if 0 in dealt)
    common = common_variables(config, carried or {}, leader=leader, port=port, dimensions=dimensions)
    plans = []
    for index, site in enumerate(sites):
        workers = tuple(
            WorkerPlan(
                rank=rank,
                local_rank=local,
                placement=placements[index][local],
                env=worker_variables(
                    rank=rank,
                    world=world,
                    local_rank=local,
                    local_world=counts[index],
                    host=site.name,
                    host_index=index,
                    host_count=len(sites),
                    placement=placements[index][local],
                    interface=site.interface,
                    place=dimensions.place_of(index) if dimensions.has_racks else None,
                    chosen=dict(common),
                )
                + _visible_devices(entries.get(site.name), local, counts[index]),
            )
            for local, rank in enumerate(ranks[index])
        )
        plans.append(
            HostPlan(name=site.name, address=site.address, interface=site.interface, workers=workers)
        )
    return LaunchPlan(
        name=config.command.name,
        engine=engine,
        command=config.command,
        argv=config.command.argv(python),
        cwd=str(config.cwd),
        python=python,
        sites=tuple(sites),
        hosts=tuple(plans),
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


def _who_runs_where(
    config: LaunchConfig, sites: Sequence[HostSite]
) -> tuple[tuple[int, ...], tuple[tuple[RankLine, ...], ...] | None]:
    """Workers of each site, and their lines where a rank file says so."""
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
    """Share a total over the hosts: to those with slots first up to them, else evenly."""
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
    """One worker for each accelerator, or one for the host; `per_host` says otherwise."""
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


def render_plan(plan: LaunchPlan, commands: Sequence[Sequence[str]]) -> str:
    """The plan as a person reads it."""
    lines = [
        f"run         {plan.name}: {shlex.join(plan.argv)}",
        f"engine      {plan.engine}",
        f"world       {plural(plan.world_size, 'worker')} on {plural(len(plan.hosts), 'host')}, "
        f"dimensions {plan.dimensions} (accelerators x hosts x racks x aisles)",
        f"leader      {plan.leader} port {plan.port}",
        f"folder      {plan.cwd}",
        "",
        f"{'rank':>4}  {'host':<16} {'local':>5}  {'cores':<10} {'processors':<14} {'threads':>7}  "
        f"{'accelerator':<11} card",
    ]
    rows = [(worker.rank, host, worker) for host in plan.hosts for worker in host.workers]
    for rank, host, worker in sorted(rows, key=lambda row: row[0]):
        place = worker.placement
        lines.append(
            f"{rank:>4}  {host.name:<16} {worker.local_rank:>5}  {place.slot if place else '-':<10} "
            f"{format_cpulist(place.cpus) if place else '-':<14} {dict(worker.env).get('OMP_NUM_THREADS', '-'):>7}  "
            f"{'-' if place is None or place.accelerator is None else place.accelerator:<11} "
            f"{host.interface or '-'} {host.address}"
        )
    lines += ["", "environment of every worker"]
    lines += [f"  {name}={value}" for name, value in masked(plan.env, plan.given_env).items()]
    lines += [f"environment of rank {rows[0][0]}"]
    lines += [f"  {name}={value}" for name, value in masked(rows[0][2].env, plan.given_env).items()]
    lines += ["", "commands"]
    lines += [f"  + {shlex.join(command)}" for command in commands]
    return "\n".join(lines)
