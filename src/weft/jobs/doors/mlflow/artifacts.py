"""Artifacts of runs: files that clients upload, in the folder of their job.

    DATA/jobs/7/artifacts/model/weights.pt

Clients name them EXPERIMENT/RUN/artifacts/PATH. A path that leaves its folder is refused, links are never followed,
and a file is there whole or not at all.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from weft.jobs.doors.access import DoorError
from weft.jobs.doors.mlflow.runs import job_id_of

LARGEST_FILE_BYTES = 100 << 30
MOST_LISTED = 10_000  # entries of one folder
LONGEST_PATH_BYTES = 1024
KEPT_FREE_BYTES = 256 << 20  # of the disk, for the database


@dataclass(frozen=True)
class ArtifactPath:
    """The job and the path that `2/7/artifacts/model/weights.pt` names."""

    experiment_id: str
    job_id: int
    path: PurePosixPath  # within the job's artifacts


def parse_path(text: str) -> ArtifactPath:
    """Return what an artifact's path names; one that could lead elsewhere is refused."""
    parts = text.strip("/").split("/")
    if len(parts) < 3 or parts[2] != "artifacts":
        raise DoorError(
            "not-found", f"an artifact must be named EXPERIMENT/RUN/artifacts/PATH, got {text[:200]!r}"
        )
    return ArtifactPath(parts[0], job_id_of(parts[1]), safe_path("/".join(parts[3:])))


def safe_path(text: str) -> PurePosixPath:
    """Return a relative path that stays below its folder."""
    path = PurePosixPath(text)
    plain = text.isprintable() and "\\" not in text and len(text.encode()) <= LONGEST_PATH_BYTES
    if path.is_absolute() or any(part in ("..", "~") for part in path.parts) or not plain:
        raise DoorError(
            "bad", f"a path must be relative, plain and stay in its folder, got {text[:200]!r}; rename it"
        )
    return path


def artifact_folder(data: Path, job_id: int) -> Path:
    return data / "jobs" / str(job_id) / "artifacts"


def locate(data: Path, job_id: int, path: PurePosixPath) -> Path:
    """Return where an artifact lies; a link on the way there is refused."""
    place = artifact_folder(data, job_id)
    for part in path.parts:
        place = place / part
        if place.is_symlink():
            raise DoorError("not-found", f"an artifact must be a plain file, got a link at {part!r}")
    return place


def list_folder(data: Path, job_id: int, path: PurePosixPath, *, base: PurePosixPath) -> list[dict[str, Any]]:
    """Return the entries of a folder, named from `base` on; of a file, the file itself; nothing where nothing is."""
    place = locate(data, job_id, path)
    if place.is_file():
        return [{"path": str(base / place.name), "is_dir": False, "file_size": place.stat().st_size}]
    if not place.is_dir():
        return []
    entries = []
    with os.scandir(place) as found:
        for entry in found:
            if entry.name.startswith(".upload-") or entry.is_symlink():
                continue
            one: dict[str, Any] = {"path": str(base / entry.name), "is_dir": entry.is_dir()}
            entries.append(one if entry.is_dir() else one | {"file_size": entry.stat().st_size})
            if len(entries) >= MOST_LISTED:
                break
    return sorted(entries, key=lambda entry: str(entry["path"]))


async def receive(data: Path, target: ArtifactPath, body: AsyncIterator[bytes]) -> None:
    """Write an uploaded file; it appears when all of it is there."""
    if not target.path.parts:
        raise DoorError("bad", "an artifact must have a name, got none; add it to the path")
    place = locate(data, target.job_id, target.path)
    if place.is_dir():
        raise DoorError(
            "bad", f"an artifact must not have the name of a folder, got {target.path}; rename it"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (FileExistsError, NotADirectoryError):
        raise DoorError(
            "bad", f"a folder must not have the name of a file, got {target.path.parent}; rename it"
        ) from None
    draft = place.parent / f".upload-{secrets.token_hex(8)}"
    try:
        await _write(draft, body)
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)


async def _write(draft: Path, body: AsyncIterator[bytes]) -> None:
    total = 0
    with draft.open("wb") as file:
        async for part in body:
            total += len(part)
            if total > LARGEST_FILE_BYTES:
                raise DoorError(
                    "too-large", f"an artifact must be at most {LARGEST_FILE_BYTES} bytes, got more"
                )
            if total % (16 << 20) < len(part) and shutil.disk_usage(draft.parent).free < KEPT_FREE_BYTES:
                raise DoorError(
                    "too-large", "the service's disk must have room for an artifact, got none; free some"
                )
            file.write(part)


def remove(data: Path, target: ArtifactPath) -> None:
    """Remove a file or a folder of artifacts."""
    place = locate(data, target.job_id, target.path)
    if place.is_dir():
        shutil.rmtree(place)
    elif place.is_file():
        place.unlink()
    else:
        raise DoorError("not-found", f"an artifact must be there to be deleted, got {target.path}")
