"""Needs of a job's engine beside hosts, told when the job is submitted and not when it first fails."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import SpecError, SpecProblem

# Types of file systems that other machines have, too. A folder on any other may still be exported by this one.
_SHARED = frozenset(
    (
        "9p", "afs", "beegfs", "ceph", "cifs", "fhgfs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.s3fs",
        "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3",
        "virtiofs", "wekafs",
    )
)  # fmt: skip
_PROGRAMS = {
    "slurm": ("salloc", "start the service where Slurm's commands are"),
    "mpi": ("mpirun", "pip install 'weft[mpi]'"),
}


def find_program(name: str) -> str | None:
    """Return the path of a program beside our interpreter or on PATH; None if it is at neither."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def check_engine(spec: JobSpec, find: Callable[[str], str | None] = find_program) -> None:
    """Refuse a job whose engine this service cannot start at all."""
    if spec.engine not in _PROGRAMS:
        return
    program, remedy = _PROGRAMS[spec.engine]
    if find(program) is None:
        must = f"be one that this service can start, {spec.engine} by {program}"
        raise SpecError((SpecProblem("engine", must, f"no {program} on its PATH", remedy),))


def engine_notes(spec: JobSpec, data: Path, mounts: str) -> tuple[str, ...]:
    """Return what a submitter should know of an engine; `mounts` is the text of /proc/mounts."""
    if spec.engine != "slurm" or file_system(data, mounts) in _SHARED:
        return ()
    return (
        f"engine slurm: the nodes must share {data} with the service, got a file system that is this machine's own "
        "unless it exports it; code and data are not carried to nodes that Slurm chooses. Start the service with "
        "--data on a shared file system, or use engine ssh, which carries them",
    )


def file_system(path: Path, mounts: str) -> str:
    """Return the type of the file system that a path is on; "" if no mount holds it."""
    held = ""
    longest = -1
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        folder = point.encode().decode("unicode_escape")  # \040 for a space
        if path.is_relative_to(folder) and len(folder) >= longest:  # of two at one place the later one counts
            held, longest = kind, len(folder)
    return held


def read_mounts() -> str:
    """Return the file systems of this machine as the kernel lists them."""
    try:
        return Path("/proc/mounts").read_text(errors="surrogateescape")
    except OSError:
        return f"root {os.sep} unknown rw 0 0\n"
