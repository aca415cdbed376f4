"""The placement of workers: which cores and which accelerator each worker of a host gets.

A worker stays on one socket, next to its accelerator where it has one: memory of the other socket
is slower to reach. The workers of a socket share its cores evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from weft.errors import TopologyError, UsageError
from weft.topology.cpulist import format_cpulist
from weft.topology.host import Accelerator, Core, Host


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The cores and the accelerator of one worker on its host."""

    socket: int
    first_core: int  # both ends count within the socket, and both belong to the worker
    last_core: int
    cpus: tuple[int, ...]  # logical processors of these cores
    numa: tuple[int, ...]
    accelerator: int | None = None  # its `index`, whatever its place in the host's list
    shared: bool = False  # the socket has fewer cores than workers, so all of them float over it
    cores: int | None = None  # their number, where they are not one stretch
    most_threads: int | None = None  # that the host has processor time for, where that is less than its cores

    @property
    def slot(self) -> str:
        """These cores in the words of a rank file."""
        return format_slot(self.socket, self.first_core, self.last_core)

    @property
    def threads(self) -> int:
        """Return how many threads the worker can keep busy."""
        own = 1 if self.shared else self.cores or self.last_core - self.first_core + 1
        return own if self.most_threads is None else min(own, self.most_threads)


def place(host: Host, workers: int) -> tuple[Placement, ...]:
    """One placement for each local worker, in the order of their local ranks."""
    if workers < 1:
        raise UsageError(
            f"a host must have at least 1 worker, got {workers} on {host.name}; leave the host out"
        )
    if not host.cores:
        raise TopologyError(
            f"a host must have a core to run on, got none on {host.name}; check its CPU affinity"
        )
    if host.cpu_quota_cores is not None:
        return _place_within(host, workers, host.cpu_quota_cores)
    return _place(host, workers)


def _place_within(host: Host, workers: int, quota_cores: float) -> tuple[Placement, ...]:
    """Placements on a host that has a share of its processors' time, and has neighbours: other containers, say.

    Workers have threads for that time. Those without an accelerator to be near run wherever there is room: neighbours
    that look at the same processors would all choose the same ones.
    """
    most = max(1, int(quota_cores / workers))
    if host.accelerators:
        found = _place(host, workers)
    else:
        cpus = sorted(cpu for core in host.cores for cpu in core.cpus)
        anywhere = _placement_on(cpus, host.cores, shared=workers > quota_cores)
        found = (replace(anywhere, numa=()),) * workers
    return tuple(replace(one, most_threads=most) for one in found)


def _place(host: Host, workers: int) -> tuple[Placement, ...]:
    accelerators = _accelerators(host, workers)
    placements: dict[int, Placement] = {}
    for socket, members in _members(host, accelerators).items():
        cores = host.cores_of(socket)
        # A socket may hold several NUMA domains: deal its cores in the order of the accelerators' domains.
        domains = list(dict.fromkeys(core.numa for core in cores))
        members.sort(key=lambda worker: _nearest(accelerators[worker], domains))
        for worker, mine in zip(members, _shares(cores, len(members)), strict=True):
            placements[worker] = _placement(mine, accelerators[worker], shared=len(members) > len(cores))
    return tuple(placements[worker] for worker in range(workers))


def place_on(host: Host, workers: int, cpus: Sequence[int]) -> tuple[Placement, ...]:
    """One placement for each local worker on just these logical processors, which are shared out in their order."""
    known = {cpu: core for core in host.cores for cpu in core.cpus}
    if strange := [cpu for cpu in cpus if cpu not in known]:
        raise TopologyError(
            f"cpus must name logical processors that a host has and may use, got {format_cpulist(strange)} for "
            f"{host.name} which has {format_cpulist(known)}; mend the hostfile"
        )
    shared = workers > len(cpus)
    ends = [0, *accumulate(split(len(cpus), workers))]
    parts = [cpus] * workers if shared else [cpus[start:end] for start, end in pairwise(ends)]
    return tuple(_placement_on(part, [known[cpu] for cpu in part], shared) for part in parts)


def _placement_on(cpus: Sequence[int], cores: Sequence[Core], shared: bool) -> Placement:
    socket = cores[0].socket
    indices = [core.index for core in cores if core.socket == socket]
    return Placement(
        socket=socket,
        first_core=min(indices),
        last_core=max(indices),
        cpus=tuple(sorted(cpus)),
        numa=tuple(sorted({core.numa for core in cores})),
        shared=shared,
        cores=len(set(cores)),
    )


def format_slot(socket: int, first_core: int, last_core: int) -> str:
    """`0:0-7`, and `0:3` for a single core, as every Open MPI reads them."""
    cores = f"{first_core}-{last_core}" if last_core > first_core else f"{first_core}"
    return f"{socket}:{cores}"


def split(total: int, parts: int) -> list[int]:
    """Sizes of `parts` even parts of `total`; what is left over goes to the first ones."""
    size, left = divmod(total, parts)
    return [size + (part < left) for part in range(parts)]


def _accelerators(host: Host, workers: int) -> list[Accelerator | None]:
    """Each worker's accelerator; blocks of workers share one where there are too few."""
    if not host.accelerators:
        return [None] * workers
    shares = split(workers, len(host.accelerators))
    return [item for item, share in zip(host.accelerators, shares, strict=True) for _ in range(share)]


def _members(host: Host, accelerators: Sequence[Accelerator | None]) -> dict[int, list[int]]:
    """The workers of each socket."""
    sockets = [accelerator.socket if accelerator else None for accelerator in accelerators]
    if not set(sockets) <= set(host.sockets):  # none, unknown, or a socket we may not run on
        sockets = [*_spread(host, len(accelerators))]
    members: dict[int, list[int]] = {}
    for worker, socket in enumerate(sockets):
        assert socket is not None
        members.setdefault(socket, []).append(worker)
    return members


def _spread(host: Host, workers: int) -> list[int]:
    """A socket for each worker, in contiguous blocks.

    The next worker goes where it finds the most cores: an even split over equal sockets, and where
    sockets are unequal none is crowded while another has cores to spare.
    """
    room = {socket: len(host.cores_of(socket)) for socket in host.sockets}
    counts = dict.fromkeys(room, 0)
    for _ in range(workers):
        counts[max(room, key=lambda socket: room[socket] / (counts[socket] + 1))] += 1
    return [socket for socket, count in counts.items() for _ in range(count)]


def _nearest(accelerator: Accelerator | None, domains: Sequence[int]) -> int:
    """The place of an accelerator's NUMA domain among those of its socket; 0 where it is unknown."""
    numa = accelerator.numa if accelerator else None
    return domains.index(numa) if numa in domains else 0


def _shares(cores: Sequence[Core], workers: int) -> list[Sequence[Core]]:
    """The cores of each worker on one socket; all of them for each where they are too few."""
    if workers > len(cores):
        return [cores] * workers
    ends = [0, *accumulate(split(len(cores), workers))]
    return [cores[start:end] for start, end in pairwise(ends)]


def _placement(cores: Sequence[Core], accelerator: Accelerator | None, shared: bool) -> Placement:
    return Placement(
        socket=cores[0].socket,
        first_core=cores[0].index,
        last_core=cores[-1].index,
        cpus=tuple(sorted(cpu for core in cores for cpu in core.cpus)),
        numa=tuple(sorted({core.numa for core in cores})),
        accelerator=accelerator.index if accelerator else None,
        shared=shared,
    )
