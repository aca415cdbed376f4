"""Requests to an elastic run that goes on: other hosts and workers (`weft scale`), and a pause (`weft pause`).

A request is written into the run directory, where the run's launcher looks for it. Only the launcher can start an agent
on a host, so it must still be there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.documents import read_document
from weft.elastic.launcher.control import (
    FOLDER,
    PAUSE_FILE,
    SCALE_FILE,
    WORKERS_FILE,
    RunControl,
    is_attended,
    read_control,
)
from weft.elastic.launcher.decisions import too_few_slots
from weft.errors import UsageError
from weft.files import write_whole
from weft.launch.agent.here import is_this_machine
from weft.topology.hostlist import HostEntry, read_hostfile


def scale(
    run_dir: Path,
    hosts: Sequence[HostEntry] = (),
    *,
    add: Sequence[HostEntry] = (),
    remove: Sequence[HostEntry] = (),
) -> tuple[HostEntry, ...]:
    """Have the run go on with `hosts`, or with its present ones changed by `add` and `remove`; return the new list.

    The number of workers of a host counts too: with fewer, those of its last slots leave at the end of their step, and
    the others go on; with more, new ones are started and join.
    """
    control = _require_attended(run_dir, "scaled")
    wanted = tuple(hosts) or _changed(wanted_hosts(run_dir), add, remove)
    _require_possible(control, wanted)
    write_whole(run_dir / FOLDER / SCALE_FILE, "".join(f"{entry.to_line()}\n" for entry in wanted))
    return wanted


def wanted_hosts(run_dir: Path) -> tuple[HostEntry, ...]:
    """Return the hosts that the run should have: as scaled last, or as it was started."""
    file = run_dir / FOLDER / SCALE_FILE
    if file.exists():
        return read_hostfile(file)
    return read_control(run_dir).hosts


def present_workers(run_dir: Path) -> Mapping[str, int]:
    """Return how many worker processes each host has now; those that are about to leave still count.

    Before the hosts have told, those that they are to begin with.
    """
    control = read_control(run_dir)  # refuses what is no elastic run
    file = run_dir / FOLDER / WORKERS_FILE
    if file.exists():
        return read_document(file, dict[str, int])
    return {entry.name: entry.workers or control.per_host or 1 for entry in control.hosts}


def pause(run_dir: Path) -> None:
    """Have the run save its next step and end. It goes on when it is started again with the same `--checkpoint`."""
    control = _require_attended(run_dir, "paused")
    if not control.checkpoint:
        raise UsageError(
            f"a run must save checkpoints to be paused, got {run_dir} without; start it with --checkpoint DIR"
        )
    write_whole(run_dir / FOLDER / PAUSE_FILE, "")


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


def _require_possible(control: RunControl, wanted: Sequence[HostEntry]) -> None:
    """Refuse hosts that the run cannot go on with."""
    own = {entry.name for entry in control.hosts}
    elsewhere = [entry.name for entry in wanted if entry.name not in own and not is_this_machine(entry.name)]
    if control.local and (elsewhere or len(wanted) > 1):
        raise UsageError(
            "a run that was started on this machine alone must stay here, got "
            f"{', '.join(entry.name for entry in wanted)}; start it with -H, or with --engine ssh, to add hosts later"
        )
    trouble = too_few_slots(wanted, least=control.least, most=control.most, per_host=control.per_host)
    if trouble is not None:
        raise UsageError(trouble)


def _require_attended(run_dir: Path, what: str) -> RunControl:
    """Refuse a run that has ended, or whose launcher is gone."""
    control = read_control(run_dir)
    if (run_dir / "outcome.json").exists():
        raise UsageError(f"a run must still go on to be {what}, got {run_dir} which has ended")
    if not is_attended(run_dir, control):
        raise UsageError(
            f"a run must have its launcher to be {what}, got {run_dir} whose launcher (process {control.launcher}) is "
            f"gone; its hosts go on to the end of the run. weft run --adopt {run_dir} gives it another launcher"
        )
    return control
