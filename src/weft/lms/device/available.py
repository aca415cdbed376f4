"""Host memory that this process may still take: what the system has, and what its container leaves of that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ROOT = Path("/")
# files of a control group, by version: limit, use, and the field of memory.stat that tells files that can be dropped
V2 = ("memory.max", "memory.current", "inactive_file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_host_bytes(root: Path = ROOT) -> int:
    """Return the bytes of host memory that programs may still take, within the limits of all groups above them."""
    return min([_available_in_system(root), *_left_in_groups(root)])


def _available_in_system(root: Path) -> int:
    with suppress(OSError, ValueError, IndexError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _left_in_groups(root: Path) -> Iterator[int]:
    """Yield what each control group of this process leaves: of its own, of the one above, and so on."""
    for mount, path, files in _groups(root):
        place = Path(path.strip("/"))
        for folder in {mount / part for part in (place, *place.parents)} | {mount}:
            left = _left(folder, files)
            if left is not None:
                yield left


def _groups(root: Path) -> Iterator[tuple[Path, str, tuple[str, str, str]]]:
    """Yield the groups that bound memory: their mount, their path below it, and the names of their files."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if number == "0" and not controllers:
                yield root / "sys/fs/cgroup", path, V2
                yield root / "sys/fs/cgroup/unified", path, V2
            elif "memory" in controllers.split(","):
                yield root / "sys/fs/cgroup/memory", path, V1


def _left(folder: Path, files: tuple[str, str, str]) -> int | None:
    """Return the bytes that a group leaves; None where it has no limit or cannot be read."""
    limit, use, droppable = files
    try:
        most = (folder / limit).read_text().strip()
        if most == "max":
            return None
        used = int((folder / use).read_text())
    except (OSError, ValueError):
        return None
    with suppress(OSError, ValueError):
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        used -= int(stat.get(droppable, 0))
    return max(0, int(most) - max(0, used))
