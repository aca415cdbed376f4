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


def check_script(spec: JobSpec, snapshot: CodeSnapshot, folder: Path) -> None:
    """Refuse a job whose script does not go along."""
    command = resolve(spec).command
    path = os.path.normpath(command.target)
    if command.kind != "script" or path.startswith("/") or spec.array:
        return
    if path in {file.path for file in snapshot.files}:
        return
    why = (
        "which is left out by .gitignore or .weftignore" if (folder / path).exists() else "which is not there"
    )
    raise SpecError(
        (
            SpecProblem(
                "run", f"name a script in the folder {folder.resolve()}", f"{path}, {why}", "check the path"
            ),
        )
    )


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
