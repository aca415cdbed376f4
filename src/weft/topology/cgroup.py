"""Limits of this process's control groups: in a container or a service it often has a part of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def cpu_quota_cores(root: Path = Path("/")) -> float | None:
    """Return the cores' worth of processor time that this process may use; None where all of them are its own."""
    found = [
        float(quota) / float(period)
        for folder in _folders(root, "cpu")
        for quota, period in (_cpu_max(folder),)
        if quota.isdecimal() and period.isdecimal() and int(quota) and int(period)
    ]
    return min(found, default=None)


def memory_limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that this process and those beside it in its groups may hold; None for no limit."""
    names = ("memory.max", "memory.limit_in_bytes")
    texts = [_text(folder / name) for folder in _folders(root, "memory") for name in names]
    return min((int(text) for text in texts if text.isdecimal()), default=None)


def _cpu_max(folder: Path) -> tuple[str, str]:
    """Return quota and period of a group: in one file of version 2, in two of version 1."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if quota:
        return quota, period
    return _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of our groups and of those above them: each may have a limit.

    A container often sees its own group as the uppermost one, whatever path the kernel names.
    """
    mounted = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number != "0" and controller not in controllers.split(","):
            continue
        top = mounted if number == "0" else mounted / controller
        group = top / path.strip("/")
        while group.is_relative_to(top):
            yield group
            group = group.parent


def _text(path: Path) -> str:
    """Return the content of a small file; empty where there is none, or the kernel refuses."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
