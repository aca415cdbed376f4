"""Names of the files in shared memory, which say who made them, and the sweep of those whose maker is dead.

A file has a name only until all peers have opened it. A maker that is killed in between leaves it behind: the next
arena sweeps it, a peer that waits in vain, and the agent of the host when a worker has ended. No torch is needed here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

HOME = Path("/dev/shm")
PREFIX = "weft-arena-"


def new_name() -> str:
    """Return a name that says who made the file: number, start and namespace of the process."""
    own = os.getpid()
    return f"{PREFIX}{own}-{start_time(own)}-{_namespace()}-{secrets.token_hex(6)}"


def sweep(home: Path = HOME) -> int:
    """Unlink files whose maker is dead and never came to unlink them; return how many."""
    dead = [path for path in home.glob(f"{PREFIX}*") if _maker_is_dead(path.name)]
    for path in dead:
        with contextlib.suppress(OSError):
            path.unlink()
    return len(dead)


def _maker_is_dead(name: str) -> bool:
    pid, _, rest = name.removeprefix(PREFIX).partition("-")
    if not pid.isdigit():
        return False
    started, _, rest = rest.partition("-")
    namespace, _, random = rest.partition("-")
    if not random:  # made by an earlier version, which gave no more than the number
        return start_time(int(pid)) is None
    # Another container may share this folder, and count its processes by itself.
    return namespace == _namespace() and start_time(int(pid)) != started


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def start_time(pid: int) -> str | None:
    """Return what tells a process from a later one with the same number; None for one that is gone."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else rest[18]
