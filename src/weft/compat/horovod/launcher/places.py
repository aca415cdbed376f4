"""Places as Horovod's launcher gives them: from variables, or dealt to hosts in their order."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOG_LEVEL_STR = ["FATAL", "ERROR", "WARNING", "INFO", "DEBUG", "TRACE"]
_RANK_AND_SIZE = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_NOT_EXPORTED = re.compile(r"BASH_FUNC_.*|OLDPWD|.*CUDA_VISIBLE_DEVICES|_HOROVOD_SECRET_KEY")
_HOST_AND_SLOTS = re.compile(r"([\w.-]+):([0-9]+)")


def get_env_rank_and_size() -> tuple[int, int]:
    """Return this process's rank and the number of ranks, by the launcher's variables; 0 of 1 without a launcher."""
    for rank_name, size_name in _RANK_AND_SIZE:
        rank, size = os.environ.get(rank_name), os.environ.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            raise RuntimeError(
                f"{rank_name} and {size_name} must both be set, got one of them; set the other"
            )
    return 0, 1


def is_exportable(name: str) -> bool:
    """Return whether a variable may be given to workers."""
    return _NOT_EXPORTED.match(name) is None


@dataclass
class HostInfo:
    """A host and how many workers it may have."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Return the host of `name:slots`."""
        name, _, slots = host_string.strip().rpartition(":")
        return HostInfo(name, int(slots))


@dataclass
class SlotInfo:
    """The place of one worker."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """Return the numbers, joined by commas: rank, size; local; cross."""
        place = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(map(str, place))


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Return the hosts of `a:4,b:4`."""
    return [HostInfo.from_string(each) for each in hosts_string.split(",")]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """Return the names of `a:4,b:4`, and the slots of each."""
    found = [_HOST_AND_SLOTS.fullmatch(each.strip()) for each in hosts.split(",")]
    if not all(found):
        raise ValueError(f"hosts must be written like worker-0:2,worker-1:2, got {hosts!r}")
    slots = {each[1]: int(each[2]) for each in found if each is not None}
    return list(slots), slots


def parse_host_files(filename: str) -> str:
    """Return the hosts of a file with lines like `a slots=4`, as `a:4,b:4`."""
    lines = [line.split() for line in Path(filename).read_text().splitlines() if line.strip()]
    return ",".join(f"{words[0]}:{words[-1].rpartition('=')[2]}" for words in lines)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Deal ranks to hosts in their order, up to a most number; refuse fewer than the least."""
    dealt: list[tuple[str, int]] = []  # host and local rank, by rank
    for host in hosts:
        free = host.slots if max_num_proc is None else min(host.slots, max_num_proc - len(dealt))
        dealt += [(host.hostname, local) for local in range(free)]
    if len(dealt) < min_num_proc:
        raise ValueError(
            f"hosts must have a slot for each of {min_num_proc} processes, got {len(dealt)} slots"
        )
    across: dict[int, list[str]] = {}  # hosts by local rank
    local_sizes: dict[str, int] = {}
    for name, local in dealt:
        across.setdefault(local, []).append(name)
        local_sizes[name] = local_sizes.get(name, 0) + 1
    return [
        SlotInfo(
            name, rank, local, across[local].index(name), len(dealt), local_sizes[name], len(across[local])
        )
        for rank, (name, local) in enumerate(dealt)
    ]
