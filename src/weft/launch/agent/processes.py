"""Starting one worker where it belongs, and ending everything it started.

The agent is the only caller. It declares itself a sub-reaper, so that whatever a worker leaves
behind becomes the agent's own child and can be found by walking `/proc`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_MPOL_PREFERRED_MANY = 5
_SYS_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237, "ppc64le": 261}.get(os.uname().machine)
_SWEEP_S = 1.0  # who has no environment by then is not about to get one
_libc = ctypes.CDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Adopt the orphans of our descendants, so that none escapes a sweep."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def follow_parent(number: int) -> None:
    """Have the kernel send us this signal when our parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str,
    cpus: Sequence[int] = (),
    numa: Sequence[int] = (),
    piped: bool = True,
    keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a worker in a session of its own, on its cores and its NUMA memory.

    Its output is piped, or, with all other open files, the same as ours. It inherits the descriptors in `keep`.
    """

    def place() -> None:
        # Runs between fork and exec. If the agent dies, however it dies, so does the worker.
        follow_parent(signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())  # ours may be busy fetching them one by one
        if cpus:
            # A core may have gone since the survey; running anywhere beats not running.
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, cpus)
        if numa:
            _prefer_memory_of(numa)

    return subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL if piped else None,
        stdout=subprocess.PIPE if piped else None,
        stderr=subprocess.PIPE if piped else None,
        close_fds=piped,
        pass_fds=tuple(keep),
        start_new_session=True,
        preexec_fn=place,
    )


class ReportPipe:
    """A pipe from a worker that is about to be started, for what it logs; the caller closes both ends."""

    def __init__(self) -> None:
        ours, self.theirs = os.pipe2(os.O_CLOEXEC)  # `keep` of `spawn` makes theirs one that is inherited
        self.ours = open(ours, "rb", buffering=0)  # noqa: SIM115 (read until the worker has gone)

    @property
    def channel(self) -> str:
        """Return how the worker is told of its end; the inode shows that a descriptor is still this pipe."""
        return f"pipe:{self.theirs},{os.fstat(self.theirs).st_ino}"


def _prefer_memory_of(domains: Sequence[int]) -> None:
    """Prefer these NUMA domains' memory; a kernel that cannot is left as it is."""
    if _SYS_SET_MEMPOLICY is None:
        return
    mask = ctypes.c_ulong(sum(1 << domain for domain in domains))
    _libc.syscall(_SYS_SET_MEMPOLICY, _MPOL_PREFERRED_MANY, ctypes.byref(mask), 8 * ctypes.sizeof(mask))


def signal_group(pid: int, number: int) -> None:
    """Signal the whole session of a worker that may already be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def descendants(root: int) -> tuple[int, ...]:
    """Every living process below `root`, found in /proc."""
    children: dict[int, list[int]] = {}
    for pid in _pids():
        parent = _parent_of(pid)
        if parent is not None:
            children.setdefault(parent, []).append(pid)
    found: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return tuple(found)


def _pids() -> Iterator[int]:
    """Yield the id of each process."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name of a process, its state first; none if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            # The name in parentheses may hold spaces, parentheses and any bytes; fields count from the last one.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def _parent_of(pid: int) -> int | None:
    fields = _stat(pid)
    return None if not fields or fields[0] == "Z" else int(fields[1])


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by a signal or a debugger."""
    fields = _stat(pid)
    return bool(fields) and fields[0] in "Tt"


def started_ticks(pid: int) -> int | None:
    """Return when a process was started, in clock ticks since the machine was; None if it is gone.

    With its id, this tells a process from a later one that has got the same id.
    """
    fields = _stat(pid)
    return None if not fields or fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class SessionUse:
    """The use of the processor by all processes of one session."""

    seconds: float  # used so far, by those that have ended too
    ready: bool  # a process runs, or would if it were given a core, or waits for a disk


def session_use(session: int) -> SessionUse:
    """Add up what the processes of a worker's session have used, its children that have ended included."""
    ticks, ready = 0, False
    for pid in _pids():
        fields = _stat(pid)
        if len(fields) > 14 and int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))  # user and system time, and the same of children
            ready |= fields[0] in "RD"
    return SessionUse(ticks / os.sysconf("SC_CLK_TCK"), ready)


def bind_session(session: int, cpus: Sequence[int]) -> None:
    """Have all threads of a worker's session run on other processors; on any of ours if none are named."""
    wanted = set(cpus) or os.sched_getaffinity(0)
    for pid in _pids():
        fields = _stat(pid)
        if len(fields) > 3 and int(fields[3]) == session:
            with contextlib.suppress(OSError):  # it has ended, or a core has gone
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), wanted)


def kill_descendants(root: int) -> int:
    """SIGKILL everything below `root`, again until nothing is left; the count that was killed."""
    killed: set[int] = set()
    for _ in range(20):  # a process may fork while we look; 20 rounds outrun any fork we mean to survive
        living = descendants(root)
        if not living:
            break
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(living)
        reap()
    return len(killed)


def reap() -> tuple[tuple[int, int], ...]:
    """Collect (pid, exit code) of every child that has ended; a signal counts as its negative."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if pid == 0:
            break
        ended.append((pid, os.waitstatus_to_exitcode(status)))
    return tuple(ended)


def sweep(marker: str) -> int:
    """SIGKILL every process whose environment holds `marker` ("NAME=value"); used when an agent is gone."""
    wanted = marker.encode()
    killed: set[int] = set()
    give_up = time.monotonic() + _SWEEP_S
    while True:
        found, unsure = _carriers(wanted)
        born = found - killed
        for pid in born:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        # Again, even if nobody is unsure: one may have forked while we looked.
        if time.monotonic() > give_up or not (born or unsure):
            return len(killed)


def _carriers(wanted: bytes) -> tuple[set[int], bool]:
    """Return who has this in their environment, and whether there is one of whom that can not be said yet."""
    found: set[int] = set()
    unsure = False
    for pid in _pids():
        if pid == os.getpid():
            continue
        try:
            variables = _environment_of(pid)
        except OSError:  # gone, or somebody else's
            continue
        if wanted in variables.split(b"\0"):
            found.add(pid)
        elif not variables:
            unsure |= _will_have_one(pid)
    return found, unsure


def _environment_of(pid: int) -> bytes:
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


def _will_have_one(pid: int) -> bool:
    """Return whether a process that showed no environment is in the middle of an exec, or just was."""
    fields = _stat(pid)
    if not fields or fields[0] in "ZX":
        return False
    size, begin, end = (int(fields[place]) for place in (20, 47, 48))
    return size > 0 and (begin == 0 or begin < end)  # the kernel's own have no memory
