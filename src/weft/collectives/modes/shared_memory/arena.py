"""Memory that the ranks of one host share: a counter and a slab for each, in a file that has no name.

The file is made in /dev/shm, opened by all peers, and unlinked before its first use: when the last process that maps it
ends, however it ends, the kernel frees it. A file whose maker died before that is swept (`files.py`).

A counter is written by its owner alone and only grows, so no atomic operation is needed: a store of eight aligned
bytes is whole, and what was stored before it is seen before it (on x86 by its memory model, elsewhere by the fence).
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import re
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from weft.collectives.modes.peers import DimensionPeers, did_not_come
from weft.collectives.modes.shared_memory.files import HOME, PREFIX, new_name, start_time, sweep
from weft.collectives.modes.shared_memory.waiting import Spinner
from weft.errors import CollectiveError, PeerError
from weft.text import format_size

_NAME = re.compile(rf"{PREFIX}[0-9a-zA-Z-]+")
FAR_BYTES, ALL_FAR_BYTES = 32 << 20, 128 << 20  # shared at most, by a rank and by a host
_LINE = 64  # bytes between two counters: each has a cache line of its own
_PAGE = mmap.PAGESIZE
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98, "ppc64le": 221}.get(platform.machine())
_FUTEX_WAIT, _FUTEX_WAKE = 0, 1
MISSED_WAKE_S = 0.002  # a sleeping rank looks by itself this often, should a wake be missed
GIVEN_UP = "was given up"  # by another thread of this process
_NEEDS_FENCE = platform.machine() != "x86_64"


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def slab_bytes(ranks: int, cores: int) -> int:
    """Memory that each rank of a host shares, where cores share caches; its two halves take turns.

    Small enough to stay in the second-level cache beside the tensor; but where ranks share cores every meeting means
    waiting for the others to run, and fewer, larger pieces win.
    """
    return 2 << 20 if ranks <= cores else 8 << 20


def far_bytes(ranks: int, near_bytes: int, free_bytes: int) -> int:
    """Memory that each rank shares where cores are far apart: more than their caches hold, if there is plenty."""
    most = max(near_bytes, min(FAR_BYTES, ALL_FAR_BYTES // ranks // near_bytes * near_bytes))
    return most if ranks * most * 4 <= free_bytes else near_bytes


def open_together(peers: DimensionPeers, near_bytes: int) -> tuple[str, int, int]:
    """Open the file that the peers share, which peer 0 makes: its name, its descriptor, and the bytes of a slab."""
    key = f"arena/{peers.name}"
    if peers.index != 0:
        file, _, size = peers.store.get(key).decode().partition(" ")
        if not file:
            raise CollectiveError(f"{peers.members[0]} could not make the memory to share; see its error")
        return file, attach(file), int(size)
    sweep()
    file, slab = new_name(), near_bytes
    if peers.whole_world:
        slab = far_bytes(peers.size, near_bytes, free_bytes())
    try:
        descriptor = create(file, peers.size, slab)
    except OSError as error:
        peers.store.set(key, "")
        raise CollectiveError(
            f"/dev/shm must have {format_size(peers.size * slab)} to share, got {error.strerror}; make it larger "
            "(mount -o remount,size=1G /dev/shm) or use --mode gloo"
        ) from error
    peers.store.set(key, f"{file} {slab}")
    return file, descriptor, slab


class Arena:
    """One shared file, mapped. Peer `index` owns counter and slab number `index`."""

    def __init__(self, descriptor: int, *, index: int, pids: Sequence[int], slab_bytes: int) -> None:
        self.index = index
        self.size = len(pids)
        self.slab_bytes = slab_bytes
        self._pids = tuple(pids)
        self._start_times = [start_time(pid) for pid in pids]
        self._control_bytes = control_bytes(self.size)
        # With all its pages at once: to find each of them later would take longer than to fill it.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        self._map = mmap.mmap(descriptor, self._control_bytes + self.size * slab_bytes, flags)
        os.close(descriptor)
        self._counters = memoryview(self._map)[: self.size * _LINE].cast("Q")
        self.closed = False  # by this process, in any of its threads
        # Beside each counter, the count its owner sleeps for (0 while it does not), whether it has left, and two words.
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._fence = threading.Lock()
        # Where every peer has a core, a short spin beats going to sleep.
        core_for_each = self.size <= len(os.sched_getaffinity(0)) or _cores() >= self.size
        self._spinner = Spinner(core_for_each=core_for_each)

    def slab(self, peer: int) -> Tensor:
        """The memory that peer `peer` fills, as bytes."""
        return torch.frombuffer(
            self._map,
            dtype=torch.uint8,
            offset=self._control_bytes + peer * self.slab_bytes,
            count=self.slab_bytes,
        )

    def word(self, peer: int, count: int) -> int:
        """Return the word of a peer with a count; read it before our own next count: the one after replaces it."""
        return self._counters[peer * 8 + 4 + (count & 1)]

    def advance(self, count: int, word: int = 0) -> None:
        """Say that we have come as far as `count`, and a word with it."""
        self._counters[self.index * 8 + 4 + (count & 1)] = word
        if _NEEDS_FENCE:
            with self._fence:
                pass
        base = self.index * 8
        self._counters[base] = count
        for peer in range(self.size):
            if peer != self.index and 0 < self._counters[peer * 8 + 1] <= count:
                self._wake(base)
                break

    def await_peer(
        self, peer: int, count: int, timeout_s: float, describe: Callable[[int, str], str]
    ) -> None:
        """Return when `peer` has come as far as `count`."""
        counters, base = self._counters, peer * 8
        if counters[base] >= count:
            return
        if not self._spinner.saw(counters, base, count):
            self._sleep_until(peer, count, timeout_s, describe)
        if _NEEDS_FENCE:
            with self._fence:
                pass

    def _sleep_until(
        self, peer: int, count: int, timeout_s: float, describe: Callable[[int, str], str]
    ) -> None:
        counters, base, mine = self._counters, peer * 8, self.index * 8 + 1
        if self.closed:  # before the counters were read here: these are nobody's
            raise PeerError(describe(peer, GIVEN_UP))
        deadline = time.monotonic() + timeout_s
        next_look = time.monotonic() + 0.2
        counters[mine] = count
        try:
            while (seen := counters[base]) < count:
                self._wait(base, seen, MISSED_WAKE_S)
                now = time.monotonic()
                if now >= next_look:
                    next_look = now + 0.2
                    if not self._lives(peer):
                        raise PeerError(describe(peer, "died"))
                    if counters[base + 2] and counters[base] < count:
                        raise PeerError(describe(peer, "gave up"))
                    if self.closed:
                        raise PeerError(describe(peer, GIVEN_UP))
                    if now >= deadline:
                        raise PeerError(describe(peer, did_not_come(timeout_s)))
        finally:
            counters[mine] = 0

    def _lives(self, peer: int) -> bool:
        started = self._start_times[peer]  # None: it was gone before we came
        return started is not None and start_time(self._pids[peer]) == started

    def _wait(self, word: int, seen: int, seconds: float) -> None:
        """Sleep until the counter changes; a wake that is missed costs `seconds`."""
        if _SYS_FUTEX is None:
            time.sleep(min(seconds, 0.0002))
            return
        limit = _Timespec(0, int(seconds * 1e9))
        address = ctypes.c_void_p(self._address + word * 8)
        _libc.syscall(
            _SYS_FUTEX, address, _FUTEX_WAIT, ctypes.c_uint32(seen & 0xFFFFFFFF), ctypes.byref(limit), None, 0
        )

    def _wake(self, word: int) -> None:
        if _SYS_FUTEX is not None:
            address = ctypes.c_void_p(self._address + word * 8)
            _libc.syscall(_SYS_FUTEX, address, _FUTEX_WAKE, ctypes.c_int(self.size), None, None, 0)

    def close(self) -> None:
        """Forget the memory; it goes when nobody maps it."""
        self._counters[self.index * 8 + 2] = 1  # nobody shall wait for us
        self.closed = True  # before the counters go: who finds those below shall know why
        # Tensors made of it keep it alive; dropping our references is all there is to do.
        self._counters = memoryview(bytearray(self.size * _LINE)).cast("Q")


def control_bytes(size: int) -> int:
    """Room for the counters, in whole pages."""
    return -(-size * _LINE // _PAGE) * _PAGE


def free_bytes(home: Path = HOME) -> int:
    """Return the bytes that are left to share."""
    room = os.statvfs(home)
    return room.f_bavail * room.f_frsize


def create(name: str, size: int, slab_bytes: int, home: Path = HOME) -> int:
    """Make the file; its descriptor. Raises OSError where the memory is not to be had."""
    descriptor = os.open(home / name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        # Take the memory now: a page that cannot be had later would end the process with SIGBUS.
        os.posix_fallocate(descriptor, 0, control_bytes(size) + size * slab_bytes)
    except OSError:
        os.close(descriptor)
        (home / name).unlink()
        raise
    return descriptor


def attach(name: str, home: Path = HOME) -> int:
    """Open the file that another rank made and return its descriptor.

    The name comes from the store, to which others may have written: it must be one that `new_name` makes, and the file
    must be a plain one of our own user.
    """
    if not _NAME.fullmatch(name):
        raise CollectiveError(
            f"memory to share must be named {PREFIX}..., got {name!r} from the store; is a stranger on this network?"
        )
    descriptor = os.open(home / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        os.close(descriptor)
        raise CollectiveError(
            f"memory to share must be a file of user {os.geteuid()}, got {home / name} of user {status.st_uid}; "
            "run all workers of a host as one user"
        )
    return descriptor


def unlink(name: str, home: Path = HOME) -> None:
    with contextlib.suppress(FileNotFoundError):
        (home / name).unlink()


def _cores() -> int:
    return os.cpu_count() or 1
