"""Processes of this machine that outlive their parent: found again by pid and start time."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def boot_id() -> str:
    """Return what the kernel calls the time since this machine was started."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def started_ticks(pid: int) -> int:
    """Return when a process was started, in clock ticks since boot; 0 if there is none, or it has ended."""
    try:
        # The name, in parentheses, may hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in "ZX" else int(fields[19])


def is_alive(pid: int, ticks: int) -> bool:
    """Return whether the process with this pid is still the one that was started then."""
    return started_ticks(pid) == ticks != 0


def find_by_variable(name: str, value: str) -> int | None:
    """Return the oldest process of ours whose environment has a variable; children that inherited it are younger."""
    found = [(started_ticks(pid), pid) for pid in find_all_by_variable(name, value)]
    alive = [entry for entry in found if entry[0]]
    return min(alive)[1] if alive else None


def find_all_by_variable(name: str, value: str) -> list[int]:
    """Return all processes of ours whose environment has a variable."""
    wanted = f"{name}={value}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
