"""System users as whom jobs run: looked up, given their folders, and acted as where files of theirs are touched.

A service that is root runs each job as the system user of the account that submitted it. What the service itself does
with files in a folder of that user, it does with the user's rights: a link there leads no further than the user could
go.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import UsageError

_NEEDED = {"CAP_CHOWN": 0, "CAP_SETGID": 6, "CAP_SETUID": 7}  # bits of CapEff in /proc/self/status
PASSABLE = 0o711  # of folders that all users pass through and only the service lists


@dataclass(frozen=True)
class SystemUser:
    """One account of this machine."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str
    shell: str


def find_system_user(name: str) -> SystemUser:
    """Return an account of this machine by its name; UsageError if there is none."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise UsageError(
            f"a system user must be an account of this machine, got {name!r}; see getent passwd"
        ) from None
    groups = tuple(os.getgrouplist(found.pw_name, found.pw_gid))
    return SystemUser(
        found.pw_name, found.pw_uid, found.pw_gid, groups, found.pw_dir, found.pw_shell or "/bin/sh"
    )


def own_name() -> str:
    """Return the name of the account that this process runs as, or its number."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def missing_right(status: str, euid: int) -> str | None:
    """Return why a process with this /proc/self/status may not run jobs as other users; None: it may."""
    if euid != 0:
        return "it is not root"
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    held = int(fields.get("CapEff", "0"), 16)
    lacking = [name for name, bit in _NEEDED.items() if not held >> bit & 1]
    return f"it is root without {', '.join(lacking)}" if lacking else None


def why_not() -> str | None:
    """Return why this process may not run jobs as other users; None: it may."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return "this system does not tell its rights"
    return missing_right(status, os.geteuid())


def closed_folder(path: Path) -> Path | None:
    """Return the first folder above a path that other users may not pass through; None: they reach it."""
    for folder in reversed(path.resolve().parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return folder
    return None


@contextmanager
def acting_as(user: SystemUser | None) -> Iterator[None]:
    """Have this thread, and no other, touch files with the rights of a user; None: as the service itself."""
    if user is None or user.uid == os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None)
    group, owner = libc.setfsgid(user.gid), libc.setfsuid(user.uid)
    try:
        if libc.setfsuid(-1) != user.uid or libc.setfsgid(-1) != user.gid:  # -1 changes nothing, and tells
            raise UsageError(
                f"files must be touched as {user.name}, got no right to; start the service as root"
            )
        yield
    finally:
        libc.setfsuid(owner)
        libc.setfsgid(group)


def hand_over(folder: Path, user: SystemUser | None) -> None:
    """Give a folder and all that is in it to a user; links are given, not what they lead to."""
    if user is None or user.uid == os.geteuid():
        return
    for _, folders, names, descriptor in os.fwalk(folder, follow_symlinks=False):
        for name in (*folders, *names):
            os.chown(name, user.uid, user.gid, dir_fd=descriptor, follow_symlinks=False)
    os.chown(folder, user.uid, user.gid, follow_symlinks=False)


def as_user(user: SystemUser | None) -> dict[str, Any]:
    """Return the options of `subprocess` for a process that runs as a user; none: as the service itself."""
    if user is None or user.uid == os.geteuid():
        return {}
    return {"user": user.uid, "group": user.gid, "extra_groups": user.groups, "umask": 0o022}


def user_environment(environ: Mapping[str, str], user: SystemUser | None) -> dict[str, str]:
    """Return an environment as a login of the user would have it: nothing of the service's own session."""
    if user is None or user.uid == os.geteuid():
        return dict(environ)
    kept = {
        name: value
        for name, value in environ.items()
        if not name.startswith(("XDG_", "SSH_", "SUDO_", "DBUS_")) and name not in _OF_A_SESSION
    }
    return {**kept, "HOME": user.home, "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}


_OF_A_SESSION = frozenset({"MAIL", "TMPDIR", "TEMP", "TMP", "PWD", "OLDPWD", "WEFT_SSH_CONFIG"})
