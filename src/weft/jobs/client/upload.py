"""Sending code to the service: a folder is described by digests, and only contents that the service lacks are sent."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from weft.jobs.api.types.files import SnapshotAnswer
from weft.jobs.client.connection import ServiceConnection
from weft.jobs.code.snapshot import CodeSnapshot, Taken
from weft.jobs.spec.model import JobSpec
from weft.jobs.spec.read import SpecError, SpecProblem, resolve

Progress = Callable[["UploadState"], None]


@dataclass(frozen=True)
class UploadState:
    """The progress of an upload."""

    files: int  # sent so far
    all_files: int  # to be sent
    sent_bytes: int
    all_bytes: int


def check_script(spec: JobSpec, folder: Path | None, snapshot: CodeSnapshot | None = None) -> None:
    """Refuse a job whose script is not in the folder of its code, or, once it is taken, not in the snapshot."""
    command = resolve(spec).command
    path = os.path.normpath(command.target)
    if folder is None or command.kind != "script" or path.startswith("/") or spec.array:
        return
    if not _is_file(folder / path):
        why = "which is not there"
    elif snapshot is not None and path not in {file.path for file in snapshot.files}:
        why = "which is left out by .gitignore or .weftignore"
    else:
        return
    where = f"name a script in the folder {folder.resolve()}"
    raise SpecError(
        (SpecProblem("run", where, f"{path}, {why}", "check the path, or name the folder with code"),)
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that is too long, or no name
        return False


def upload(
    connection: ServiceConnection, taken: Taken, progress: Progress | None = None
) -> tuple[str, UploadState]:
    """Send a snapshot that was taken."""
    asked = connection.send("POST", "/snapshots", SnapshotAnswer, taken.snapshot)
    sizes = {file.digest: file.size for file in taken.snapshot.files}
    if taken.snapshot.git_diff:
        sizes[taken.snapshot.git_diff] = len(taken.diff)
    state = UploadState(0, len(asked.missing), 0, sum(sizes.get(digest, 0) for digest in asked.missing))
    for digest in asked.missing:
        connection.put_bytes(f"/blobs/{digest}", taken.read(digest))
        state = UploadState(
            state.files + 1, state.all_files, state.sent_bytes + sizes.get(digest, 0), state.all_bytes
        )
        if progress is not None:
            progress(state)
    if asked.missing:  # now that all contents are there, the snapshot can be kept
        asked = connection.send("POST", "/snapshots", SnapshotAnswer, taken.snapshot)
    return asked.digest, state
