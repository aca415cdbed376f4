"""What the kernel shows of a fork in `/proc`: its own command line and environment, not those of the first process.

Launchers find agents by command lines, and sweeps find workers by a variable of their environment.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_MAP = "@11QQIi"  # struct prctl_mm_map: eleven addresses; no auxiliary vector; the executable stays
# Fields of /proc/PID/stat, counted from 1: code and data, the heap's start; the stack.
_CODE_AND_DATA, _HEAP, _STACK = (26, 27, 45, 46), 47, 28
_shown: list[mmap.mmap] = []  # what the kernel reads, for as long as this process lives


def show(argv: Sequence[str], environment: Mapping[str, str]) -> None:
    """Have `/proc/PID/cmdline` and `environ` of this process tell these, as far as the kernel lets us."""
    words, variables = _text(argv), _text(f"{name}={value}" for name, value in environment.items())
    memory = mmap.mmap(-1, len(words + variables), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.write(words + variables)
    _shown.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    stat = ["", "", "", *Path("/proc/self/stat").read_text().rpartition(")")[2].split()]
    libc = ctypes.CDLL(None)
    libc.sbrk.restype = ctypes.c_size_t
    addresses = [
        *(int(stat[field]) for field in (*_CODE_AND_DATA, _HEAP)),
        libc.sbrk(0),
        *(int(stat[_STACK]), start, start + len(words), start + len(words), start + len(words + variables)),
    ]
    layout = struct.pack(_MAP, *addresses, 0, 0, -1)
    libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, layout, ctypes.c_ulong(len(layout)), ctypes.c_ulong(0))


def _text(words: Iterable[str]) -> bytes:
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def stands_for_fork(line: Sequence[str]) -> bool:
    """Return whether a process only waits for the fork that it asked for (`testing.forking.client`). Pure."""
    return len(line) > 2 and line[1] == "-IS" and re.search(r"/weft-forks-[^/]+/bin/", line[2]) is not None
