"""Scaling of a run that goes on to other hosts: `weft scale`, for Python.

The wanted hosts are written into the run directory, where the run's launcher looks for them. Only the launcher can
start an agent on a host, so it must still be there.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from weft.documents import read_document
from weft.elastic.launcher.hosts_wanted import SCALE_FILE
from weft.errors import UsageError
from weft.files import write_whole
from weft.topology.hostlist import HostEntry, read_hostfile


class RunControl(msgspec.Struct, frozen=True):
    """The part of `control.json` that is read here: the hosts a run was started with, and its launcher's process."""

    hosts: tuple[HostEntry, ...]
    launcher: int | None = None


def scale(
    run_dir: Path,
    hosts: Sequence[HostEntry] = (),
    *,
    add: Sequence[HostEntry] = (),
    remove: Sequence[HostEntry] = (),
) -> tuple[HostEntry, ...]:
    """Have the run go on with `hosts`, or with its present ones changed by `add` and `remove`; return the new list."""
    _require_running(run_dir)
    wanted = tuple(hosts) or _changed(wanted_hosts(run_dir), add, remove)
    lines = [
        entry.name if entry.workers is None else f"{entry.name} slots={entry.workers}" for entry in wanted
    ]
    write_whole(run_dir / "elastic" / SCALE_FILE, "\n".join(lines) + "\n")
    return wanted


def wanted_hosts(run_dir: Path) -> tuple[HostEntry, ...]:
    """Return the hosts that the run should have: as scaled last, or as it was started."""
    file = run_dir / "elastic" / SCALE_FILE
    if file.exists():
        return read_hostfile(file)
    return _control(run_dir).hosts


def _changed(
    before: Sequence[HostEntry], add: Sequence[HostEntry], remove: Sequence[HostEntry]
) -> tuple[HostEntry, ...]:
    """Return the hosts in `before`, with those in `add` and without those in `remove`."""
    known = {entry.name: entry for entry in before}
    unknown = [entry.name for entry in remove if entry.name not in known]
    if unknown:
        raise UsageError(
            f"--remove must name hosts of the run, got {', '.join(unknown)}; it has {', '.join(known)}"
        )
    dropped = {entry.name for entry in remove}
    left = {name: entry for name, entry in known.items() if name not in dropped}
    left |= {entry.name: entry for entry in add}
    if not left:
        raise UsageError("a run must keep at least one host, got none left; end it with Ctrl-C instead")
    return tuple(left.values())


def _control(run_dir: Path) -> RunControl:
    path = run_dir / "elastic" / "control.json"
    if not path.exists():
        raise UsageError(
            f"{run_dir} must be an elastic run of ours, got no elastic/control.json; was it started with --elastic?"
        )
    return read_document(path, RunControl)


def _require_running(run_dir: Path) -> None:
    control = _control(run_dir)
    if (run_dir / "outcome.json").exists():
        raise UsageError(f"a run must still go on to be scaled, got {run_dir} which has ended")
    pid = control.launcher
    if pid is not None and not _is_alive(pid):
        raise UsageError(
            f"a run must have its launcher to be scaled, got {run_dir} whose launcher (process {pid}) is gone; its "
            "hosts go on to the end of the run"
        )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
