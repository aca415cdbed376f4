"""The ranks of a group that NCCL can join, found out when its first tensor on an accelerator comes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from weft.collectives.choices import ModeChoice
from weft.collectives.groups.device import CudaLift, OnDevice, PinnedStaging
from weft.collectives.groups.meeting import Meeting
from weft.collectives.hierarchy import Hierarchy
from weft.collectives.members import Layout
from weft.collectives.modes import nccl


def nccl_groups(
    layout: Layout, accelerators: Sequence[str], choice: ModeChoice
) -> tuple[tuple[int, ...], ...]:
    """The ranks that form a group of NCCL each; none where it cannot serve, or is not wanted.

    `accelerators` holds what each rank says it uses, nothing where it has no NCCL. NCCL does not take two ranks on one
    accelerator. Between hosts our own modes are the default, which have the lighter wires; `--mode nccl` is NCCL all
    the way.
    """
    wanted = choice.mode_of(0) in ("explore", "nccl")
    apart = all(
        all(accelerators[rank] for rank in ranks)
        and len({accelerators[rank] for rank in ranks}) == len(ranks)
        for ranks in layout.hosts
    )
    if not wanted or not apart:
        return ()
    everyone = tuple(sorted(rank for ranks in layout.hosts for rank in ranks))
    if len(layout.hosts) == 1 or {choice.mode_of(0), choice.mode_of(1)} == {"nccl"}:
        return (everyone,)
    return tuple(ranks for ranks in layout.hosts if len(ranks) > 1)


def meet_on_device(meeting: Meeting, hierarchy: Hierarchy, device: torch.device) -> OnDevice:
    """Return what serves this group's tensors on a device; every rank comes here with its first such tensor."""
    store, rank = meeting.store, meeting.rank
    mine = str(torch.cuda.get_device_properties(device).uuid) if nccl.available() else ""
    store.set(f"accelerator/{rank}", mine)
    devices = [store.get(f"accelerator/{other}").decode() for other in range(len(meeting.members))]
    groups = nccl_groups(meeting.layout, devices, meeting.settings.mode)
    ours = next((ranks for ranks in groups if rank in ranks and len(ranks) > 1), None)
    by_hosts = bool(groups) and len(groups[0]) < meeting.layout.size
    connected = nccl.Nccl.connect(meeting.peers(ours, str(ours[0]))) if ours else None
    return OnDevice(hierarchy, PinnedStaging(CudaLift(device), meeting.homes), connected, by_hosts=by_hosts)
