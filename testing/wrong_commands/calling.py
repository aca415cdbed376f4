"""Calls `weft` in this process under guard: nothing is started, connected to, or written outside of a folder.

Whatever would touch the world ends the call with `Started`: the command line was accepted.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.wrong_commands.lines import CommandLine

MOST_CPU_S = 5.0  # of one wrong command line; the modules that it needs are loaded before
# What a message says: must, got, next; or one of click's own usage errors.
_MUST_GOT = re.compile(r"\b(must|needs?|needed|cannot|not)\b", re.IGNORECASE)
_USAGE = re.compile(r"^(Error|Usage): ", re.MULTILINE)
_STARTS = frozenset(
    ["subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec", "pty.spawn",
     "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostbyname"]
)  # fmt: skip
_CHANGES = frozenset(
    ["os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.utime",
     "shutil.rmtree"]
)  # fmt: skip
# Folders of the scratch folder that a call may write to: __pycache__ is Python's, made when a script is imported.
_NOT_COMPARED = frozenset(["cache", "tmp", "damaged", "__pycache__"])


class Started(BaseException):
    """The call would have started a process, opened a connection or listened."""


@dataclass
class Guard:
    """The audit hook of this process: while on, it refuses starts and notes changes outside of its folders."""

    folders: tuple[str, ...]
    on: bool = False
    outside: list[str] = field(default_factory=list)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "subprocess.Popen" and args[0] == "nvidia-smi":
            raise FileNotFoundError(2, "No such file or directory", args[0])  # a machine without accelerators
        if event == "socket.bind" and args[0].type & 0xF == socket.SOCK_STREAM:
            return  # a port is taken before anything listens on it, or looked at to see whether it is free
        if event in _STARTS:
            raise Started(event)
        changed = args[0] if event in _CHANGES else _written(event, args)
        if isinstance(changed, (str, bytes, os.PathLike)):
            path = os.path.abspath(os.fsdecode(changed))  # noqa: PTH100 (the file may be gone already)
            if not path.startswith(self.folders):
                self.outside.append(f"{event} {path}")


def _written(event: str, args: tuple[Any, ...]) -> Any:
    if event != "open" or not isinstance(args[2], int):
        return None
    writing = args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    return args[0] if writing else None


@dataclass(frozen=True)
class Called:
    """The outcome of a command line; the exit code is None if it was accepted and stopped by the guard."""

    line: CommandLine
    code: int | None
    told: str
    cpu_s: float
    outside: tuple[str, ...]
    changed: tuple[str, ...]


def call_guarded(line: CommandLine, guard: Guard, scratch: Path) -> Called:
    """Carry out a command line under guard."""
    from weft import cli

    before = file_states(scratch)
    out, err = (
        io.TextIOWrapper(io.BytesIO(), "utf-8"),
        io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace"),
    )
    guard.outside.clear()
    start = time.process_time()
    code: int | None
    stopped = ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _watched(guard):
        try:
            code = cli.call(line.argv)
        except Started as started:
            code, stopped = None, str(started)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    cpu_s = time.process_time() - start
    err.flush()
    told = err.buffer.getvalue().decode("utf-8", "backslashreplace") + stopped
    return Called(line, code, told, cpu_s, tuple(guard.outside), _changes(before, file_states(scratch)))


def stop_at_service() -> None:
    """Have `weft up` end with `Started` once its options are checked."""
    from weft.jobs.api import process

    def stop(*args: Any) -> None:
        raise Started("a service")

    setattr(process, "run_service", stop)  # noqa: B010 (mypy knows its signature)


def stop_at_seams() -> None:
    """Have the actors that work in this process end a call with `Started`, as those that start processes do."""
    from weft.serve.export.sources.learn_source import LearnSource
    from weft.serve.export.sources.torch_source import TorchExportSource
    from weft.serve.server.models.repository import Repository

    def stop(*args: Any, **options: Any) -> Any:
        raise Started("an actor of this process")

    for owner, method in ((TorchExportSource, "write"), (LearnSource, "write"), (Repository, "start")):
        setattr(owner, method, stop)


@contextlib.contextmanager
def _watched(guard: Guard) -> Iterator[None]:
    guard.on = True
    try:
        yield
    finally:
        guard.on = False


def file_states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the time of the last change of every file below a folder."""
    found = {}
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in _NOT_COMPARED]
        for name in files:
            if name.endswith(".lock"):  # made to be locked, and left for the next one
                continue
            stat = os.stat(os.path.join(root, name))  # noqa: PTH116, PTH118 (the fastest way)
            found[os.path.join(root, name)] = stat.st_size, stat.st_mtime_ns  # noqa: PTH118
    return found


def _changes(before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]]) -> tuple[str, ...]:
    """Return the files that a call changed, removed or left behind."""
    return tuple(sorted(path for path in before | after if before.get(path) != after.get(path)))


def judge(called: Called) -> str:
    """Return what is wrong with how a command line was answered; nothing if all is well."""
    if "Traceback" in called.told or "fault of weft" in called.told:
        return "traceback"
    if called.line.refused and called.code in (0, None):
        return "accepted"
    if called.code not in (0, 1, 2, None) or (called.line.refused and called.code != 2):
        return f"exit code {called.code}"
    if called.outside and (called.code in (1, 2) or called.line.refused):
        return f"written outside: {called.outside[0]}"
    if called.changed and (called.code == 2 or called.line.refused):
        return f"changed files: {called.changed[0]}"
    if called.code in (1, 2) and not _explains(called.told) and called.line.refused:
        return "no must, got, next"
    if called.cpu_s > MOST_CPU_S:
        return f"{called.cpu_s:.1f} s of processor time"
    return ""


def _explains(told: str) -> bool:
    if _USAGE.search(told):
        return True
    ours = [line for line in told.splitlines() if line.startswith("weft: ")]
    return any(map(_MUST_GOT.search, ours))
