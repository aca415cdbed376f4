"""Machines made of Linux namespaces: own network, name, mounts, shared memory and process table.

The namespaces have no name: a holder process keeps them open and dies with whoever built them, so the kernel
itself takes everything down after a crash, even after SIGKILL. There is nothing that could stay behind.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def entered(holder: int, kind: str) -> Iterator[None]:
    """Put this thread into the `net` or `pid` namespace of a holder, and back.

    Sockets made inside belong to that network for good; children born inside belong to that process table.
    """
    target = "pid_for_children" if kind == "pid" else kind  # a holder's own table is the outer one
    with ExitStack() as stack:
        back, there = (
            stack.enter_context(Path(path).open("rb"))
            for path in (f"/proc/thread-self/ns/{kind}", f"/proc/{holder}/ns/{target}")
        )
        enter_namespace(there.fileno())
        try:
            yield
        finally:
            enter_namespace(back.fileno())


def enter_namespace(descriptor: int) -> None:
    """Put this thread into a namespace by an open descriptor of it."""
    # os.setns exists from Python 3.12 on.
    if _libc.setns(descriptor, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def missing_rights() -> str | None:
    """Why no machine can be made here, if so; root in a container may not be enough."""
    trial = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"]
    done = subprocess.run(trial, capture_output=True, text=True, timeout=60, check=False)
    return done.stderr.strip() if done.returncode else None


class Machine:
    """A set of namespaces whose process 1 runs a shell script.

    The script says `made` when its preparations are done, then waits for a line that says its cables are
    plugged. Build it from a thread that lives as long as the machine: the kernel ties the two together.
    """

    def __init__(self, script: str, log: Path) -> None:
        self._log = log
        with log.open("ab") as stderr:
            self._holder = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL"]
                + ["unshare", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
                + ["sh", "-euc", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,  # a Ctrl-C is for the test, which then takes us down in order
            )
        self._init: psutil.Process | None = None
        self._started: list[subprocess.Popen[str]] = []

    @property
    def pid(self) -> int:
        """The holder, whose /proc/<pid>/ns are the doors into the machine."""
        return self._holder.pid

    @property
    def alive(self) -> bool:
        return self._holder.poll() is None

    def wait_made(self) -> None:
        assert self._holder.stdout is not None
        with self._holder.stdout as stdout:
            if stdout.readline() != "made\n":
                self.kill()
                raise RuntimeError(f"a machine did not start:\n{self._log.read_text()}")
        (self._init,) = psutil.Process(self.pid).children()

    def plugged(self) -> None:
        assert self._holder.stdin is not None
        with self._holder.stdin as stdin:
            stdin.write("plugged\n")

    def popen(
        self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, **more: Any
    ) -> subprocess.Popen[str]:
        """Start a command on the machine; signals and exit status are those of the command itself."""
        # Entering a process table takes a fork, so we enter before ours: then nothing stands between us and
        # the command. Entering mounts takes an exec, hence nsenter, which forgets the folder, hence env.
        enter = ["nsenter", f"--target={self.pid}", "--net", "--uts", "--ipc", "--mount"]
        with entered(self.pid, "pid"):
            started: subprocess.Popen[str] = subprocess.Popen(
                [*enter, "env", f"--chdir={cwd}", *argv],
                env=env,
                text=True,
                start_new_session=True,  # a group led from outside the process table would read as 0 inside
                **more,
            )
        self._started.append(started)
        return started

    def processes(self) -> list[psutil.Process]:
        """All that lives on the machine, process 1 included."""
        table = Path(f"/proc/{self.pid}/ns/pid_for_children").readlink()
        return [process for process in psutil.process_iter() if _table(process.pid) == table]

    def kill(self) -> None:
        """End all processes at once; when this returns they are gone."""
        if self._init is not None:
            with suppress(psutil.NoSuchProcess):
                self._init.kill()
            # Process 1 takes all others with it, and ends itself once their parents have heard of their end.
            for process in self._started:
                process.wait()
            with suppress(subprocess.TimeoutExpired):
                self._holder.wait(60)
        self._holder.kill()
        self._holder.wait()
        for pipe in (self._holder.stdin, self._holder.stdout):
            if pipe is not None:
                pipe.close()


def _table(pid: int) -> Path | None:
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink()
    except OSError:  # gone, or a zombie
        return None
