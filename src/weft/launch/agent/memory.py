"""The memory of workers: what the processes of each worker's session hold, looked at about once a second.

A look costs little: of processes that belong to others only the ids are listed, and their files are read once. What
several processes of a worker share counts once, but that is only reckoned when a limit seems to be reached.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

LOOK_S = 1.0  # between two looks
FULL_LOOKS = 16  # looks after which ids that were others' are read again: they may have been given away since
OUT_OF_MEMORY = "out of memory"  # begins the sentence about a worker that held too much
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SESSION, _RESIDENT = 3, 21  # fields of /proc/PID/stat after the name


class MemoryWatch:
    """Finds workers that hold more memory than `limit_bytes`; no limit, no look."""

    def __init__(self, limit_bytes: int, *, proc: str = "/proc") -> None:
        self.limit_bytes, self._proc = limit_bytes, proc
        self._others: set[str] = set()  # processes of other sessions
        self._looks = 0
        self.due_at = 0.0  # monotonic seconds

    def look(self, sessions: Iterable[int], now: float) -> dict[int, int]:
        """Return the bytes of each session that holds more than the limit, if a look is due."""
        if not self.limit_bytes or now < self.due_at:
            return {}
        self.due_at = now + LOOK_S
        found = self._processes(set(sessions))
        return {
            session: used
            for session, resident in found.items()
            if sum(resident.values()) > self.limit_bytes
            and (used := self._held_by(resident)) > self.limit_bytes
        }

    def _processes(self, sessions: set[int]) -> dict[int, dict[str, int]]:
        """Return the processes of each session, with the bytes that are resident of each."""
        pids = {name for name in os.listdir(self._proc) if name.isdigit()}
        self._others = self._others & pids if self._looks % FULL_LOOKS else set()
        self._looks += 1
        found: dict[int, dict[str, int]] = {session: {} for session in sessions}
        for pid in pids - self._others:
            session, resident = self._stat(pid)
            if session in found:
                found[session][pid] = resident
            elif session >= 0:
                self._others.add(pid)
        return found

    def _stat(self, pid: str) -> tuple[int, int]:
        """Return the session of a process and its resident bytes; -1 if it is gone."""
        try:
            with open(f"{self._proc}/{pid}/stat", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
            return int(fields[_SESSION]), int(fields[_RESIDENT]) * _PAGE_BYTES
        except (OSError, IndexError):
            return -1, 0

    def _held_by(self, resident: dict[str, int]) -> int:
        """Return the bytes that some processes hold together: pages that they share are parted among them."""
        return sum(self._share(pid, size) for pid, size in resident.items())

    def _share(self, pid: str, resident: int) -> int:
        try:
            with open(f"{self._proc}/{pid}/smaps_rollup") as file:
                lines = [line.split() for line in file if line.startswith("Pss:")]
            return int(lines[0][1]) * 1024
        except (OSError, IndexError):
            return resident


def describe_excess(who: str, used_bytes: int, limit_bytes: int) -> str:
    """Say that a worker was ended for the memory it held."""
    from weft.text import format_size  # only where it is needed: agents start in milliseconds

    used, limit = format_size(used_bytes, trimmed=True), format_size(limit_bytes, trimmed=True)
    return f"{OUT_OF_MEMORY}: {who} used {used}, its limit is {limit} (--memory)"
