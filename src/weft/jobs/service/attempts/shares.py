"""The division of a host among jobs: which processors and which accelerators are whose. Pure.

The scheduler counts; here the counted amounts become numbers of devices. Jobs get disjoint processors and accelerators.
Parts of one (half an accelerator, say) are packed onto as few as possible, so that whole ones stay free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.jobs.scheduler.model import Allocation, Resources
from weft.jobs.store.attempts import AttemptShare
from weft.topology.host import Host

ROUNDING = 1e-6  # of a processor or accelerator
Holdings = Mapping[
    str, Sequence[tuple[AttemptShare, Resources]]
]  # of each host: who holds what, and per worker


def share_out(
    allocation: Allocation,
    per_worker: Resources,
    hosts: Mapping[str, Host],
    holdings: Holdings,
    before: Sequence[AttemptShare] = (),
) -> tuple[AttemptShare, ...]:
    """Return the processors and accelerators for an allocation; a job that changes its size keeps what it had."""
    had = {share.host: share for share in before}
    shares = []
    for name, workers in allocation:
        host = hosts.get(name)
        if host is None:
            shares.append(AttemptShare(name, workers))
            continue
        taken = holdings.get(name, ())
        mine = had.get(name, AttemptShare(name, 0))
        gpus = _choose(
            [item.index for item in host.accelerators],
            _load([(share.gpus, share.workers * each.gpus) for share, each in taken]),
            workers * per_worker.gpus,
            mine.gpus,
        )
        cpus = _choose(
            _processors(host, gpus),
            _load([(share.cpus, share.workers * each.cpus) for share, each in taken]),
            workers * per_worker.cpus,
            mine.cpus,
        )
        shares.append(AttemptShare(name, workers, cpus, gpus))
    return tuple(shares)


def _processors(host: Host, gpus: Iterable[int]) -> list[int]:
    """Return the processors of a host: those on the sockets of some accelerators first, threads of a core together."""
    near = {item.socket for item in host.accelerators if item.index in gpus}
    cores = sorted(host.cores, key=lambda core: (core.socket not in near, core.socket, core.index))
    return [cpu for core in cores for cpu in core.cpus]


def _load(held: Iterable[tuple[Sequence[int], float]]) -> dict[int, float]:
    """Return how much of each device is held: all of it, or a part by those that share it."""
    load: dict[int, float] = {}
    for devices, amount in held:
        whole = int(amount + ROUNDING)
        rest = amount - whole
        for index, device in enumerate(devices):
            load[device] = load.get(device, 0.0) + (1.0 if index < whole else max(rest, ROUNDING))
    return load


def _choose(
    devices: Sequence[int], load: Mapping[int, float], amount: float, kept: Sequence[int]
) -> tuple[int, ...]:
    """Return devices for an amount: whole ones first in the list, then the one that is shared."""
    whole = int(amount + ROUNDING)
    rest = amount - whole
    order = {device: place for place, device in enumerate(devices)}
    # A run that shrinks gives up its last ones, so it keeps its own in their order.
    mine = {device: place for place, device in enumerate(kept) if device in order}
    free = sorted(
        devices,
        key=lambda device: (mine.get(device, len(mine)), load.get(device, 0.0), order[device]),
    )
    chosen = free[:whole]
    if rest > ROUNDING and len(chosen) < len(free):
        left = [device for device in free if device not in chosen]
        fitting = [device for device in left if load.get(device, 0.0) + rest <= 1.0 + ROUNDING]
        # The fullest that still has room leaves whole devices to others.
        chosen.append(
            max(fitting or left, key=lambda device: (device in mine, load.get(device, 0.0), -order[device]))
        )
    return tuple(chosen)
