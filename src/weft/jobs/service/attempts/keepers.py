"""Keepers: the launchers of jobs, each a process in a session of its own that outlives the service.

A lock in the attempt's folder belongs to the keeper for as long as it lives, so that no attempt is ever run twice: the
service takes the lock, hands it to the process it starts, and lets go of its own copy. A service that was killed in
between finds the lock held, or free; a keeper whose pid was not yet recorded is found by its token.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import UsageError
from weft.files import write_whole
from weft.jobs.service.attempts.command import HOSTFILE, TOKEN_VARIABLE, KeeperCommand
from weft.jobs.service.attempts.on_kubernetes import SETTINGS_FILE
from weft.jobs.service.attempts.processes import (
    find_all_by_variable,
    find_by_variable,
    is_alive,
    started_ticks,
)
from weft.jobs.service.attempts.system_user import acting_as, as_user

LOCK_FILE = "keeper.lock"
LOG_FILE = "launcher.log"


@dataclass(frozen=True)
class KeeperProcess:
    """One keeper, told from a later process with the same pid by its start."""

    pid: int
    ticks: int

    @property
    def alive(self) -> bool:
        return is_alive(self.pid, self.ticks)


class Keepers:
    """The keepers of this machine. `on_end(job_id, code)` is called in the event loop when one has ended."""

    def __init__(self, on_end: Callable[[int, int | None], None]) -> None:
        self._on_end = on_end
        self._watched: dict[
            int, tuple[KeeperProcess, int]
        ] = {}  # by job, with the descriptor that tells its end
        self._children: dict[int, subprocess.Popen[bytes]] = {}  # by pid: those that this process started

    def start(self, folder: Path, command: KeeperCommand) -> KeeperProcess | None:
        """Start a keeper; None if the attempt has one. Does not touch the event loop, so a thread may call it."""
        owner = command.owner
        with acting_as(owner):
            lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            with acting_as(owner):
                write_whole(folder / HOSTFILE, command.hostfile)
                if command.pods is not None:
                    write_whole(folder / SETTINGS_FILE, msgspec.json.encode(command.pods))
                log = (folder / LOG_FILE).open("ab")
            with log:
                child = _spawn(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    pass_fds=(lock,),
                )
        finally:
            os.close(lock)
        self._children[child.pid] = child
        return KeeperProcess(child.pid, started_ticks(child.pid))

    def find(self, folder: Path, token: str) -> KeeperProcess | None:
        """Return the keeper of an attempt whose pid nobody recorded; None if it has none."""
        if not is_locked(folder):
            return None
        pid = find_by_variable(TOKEN_VARIABLE, token)
        return KeeperProcess(pid, started_ticks(pid)) if pid is not None else None

    def watch(self, job_id: int, keeper: KeeperProcess) -> bool:
        """Tell of the end of a keeper; False if it has ended already."""
        if job_id in self._watched:
            return True
        try:
            descriptor = os.pidfd_open(keeper.pid)
        except OSError:
            return False
        if not keeper.alive:  # another process has its pid by now, or it is a zombie
            os.close(descriptor)
            return False
        self._watched[job_id] = keeper, descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, job_id)
        return True

    def _ended(self, job_id: int) -> None:
        keeper = self._forget(job_id)
        self._on_end(job_id, self.code_of(keeper))

    def _forget(self, job_id: int) -> KeeperProcess:
        keeper, descriptor = self._watched.pop(job_id)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        return keeper

    def code_of(self, keeper: KeeperProcess) -> int | None:
        """Return the exit code of a keeper that has ended; None if it was not a child of this process."""
        child = self._children.pop(keeper.pid, None)
        return child.wait() if child is not None else None

    def signal(self, job_id: int, number: signal.Signals) -> bool:
        """Send a signal to a job's keeper; False if it is gone."""
        watched = self._watched.get(job_id)
        if watched is None:
            return False
        try:
            signal.pidfd_send_signal(watched[1], number)
        except OSError:
            return False
        return True

    def kill(self, job_id: int, token: str) -> None:
        """End a keeper and all that it left on this machine, when asking did not help."""
        self.signal(job_id, signal.SIGKILL)
        for pid in find_all_by_variable(TOKEN_VARIABLE, token):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)

    def release(self) -> None:
        """Watch no keeper any more."""
        for job_id in list(self._watched):
            self._forget(job_id)

    def close(self) -> None:
        """Let all keepers go on without this process."""
        self.release()
        for child in self._children.values():
            if child.poll() is None:
                child.returncode = 0  # it is nobody's to wait for; Popen would warn of it
        self._children.clear()


def _spawn(command: KeeperCommand, **streams: Any) -> subprocess.Popen[bytes]:
    """Start a keeper in a session of its own, as its owner; UsageError where that user cannot run it."""
    try:
        return subprocess.Popen(
            command.argv,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
            **streams,
            **as_user(command.owner),
        )
    except PermissionError:
        if command.owner is None:
            raise
        raise UsageError(
            f"{command.owner.name} must be able to run {command.argv[0]} in {command.cwd}, got no right to; "
            "let that user read them, or name another system user"
        ) from None


def is_locked(folder: Path) -> bool:
    """Return whether a keeper of an attempt lives, on this machine or on another that shares the folder."""
    try:
        lock = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
