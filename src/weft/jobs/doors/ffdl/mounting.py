"""A folder at a fixed place of the file system, for one process and its children alone.

The process gets a mount namespace of its own, in a user namespace where it is not root: a root folder in memory, into
which everything of the real root is bound, and one more folder. Nothing changes for other processes.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18


class MountError(OSError):
    """A mount that the system does not allow."""


def enter_with(place: str, folder: Path, root: Path) -> None:
    """Let this process, which must have one thread, see `folder` at `place`, a new name in the root folder.

    `root` is an empty folder, which may be removed once this process has entered.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    cwd, uid, gid = Path.cwd(), os.getuid(), os.getgid()
    if uid == 0:
        _check(libc.unshare(CLONE_NEWNS), "a mount namespace")
    else:
        _check(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS), "a user namespace")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "private mounts")
    _check(libc.mount(b"tmpfs", bytes(root), b"tmpfs", 0, b"size=64k,mode=755"), "a root in memory")
    for entry in os.scandir("/"):
        _bind_entry(libc, entry, root)
    target = root / place.lstrip("/")
    target.mkdir()
    _check(libc.mount(bytes(folder), bytes(target), None, MS_BIND, None), f"{folder} at {place}")
    os.chroot(root)
    os.chdir(cwd)


def _bind_entry(libc: ctypes.CDLL, entry: os.DirEntry[str], root: Path) -> None:
    target = root / entry.name
    if entry.is_symlink():
        target.symlink_to(Path(entry.path).readlink())
        return
    if entry.is_dir(follow_symlinks=False):
        target.mkdir()
    else:
        target.touch()
    _check(libc.mount(os.fsencode(entry.path), bytes(target), None, MS_BIND | MS_REC, None), entry.path)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise MountError(number, f"{what}: {os.strerror(number)}")
