"""Staging and storing: a job's code and data before it starts, its outputs after it has ended."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from weft.errors import UsageError
from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.environment import record_environment
from weft.jobs.code.snapshot import CodeSnapshot
from weft.jobs.service.attempts.system_user import PASSABLE, SystemUser, acting_as, hand_over
from weft.jobs.spec.model import JobSpec

PRIVATE = 0o700


def stage_code(
    blobs: BlobStore,
    snapshot: CodeSnapshot | None,
    folder: Path,
    checkpoints: Path,
    owner: SystemUser | None = None,
) -> None:
    """Write the code of an attempt and make its folders; what an interrupted staging left is done again.

    Both folders belong to the owner in the end; the folder of the job, in which they lie, stays the service's.
    """
    folder.mkdir(PRIVATE, parents=True, exist_ok=True)
    if owner is not None:
        folder.parent.chmod(PASSABLE)
    checkpoints.mkdir(PRIVATE, exist_ok=True)
    hand_over(checkpoints, owner)
    if folder.joinpath("code").exists():
        hand_over(folder, owner)
        return
    (folder / "outputs").mkdir(PRIVATE, exist_ok=True)
    code, draft = folder / "code", folder / "code.draft"
    shutil.rmtree(draft, ignore_errors=True)
    if snapshot is None:
        draft.mkdir(PRIVATE)
    else:
        blobs.write_out(snapshot, draft)
    record_environment(folder)
    draft.rename(code)
    hand_over(folder, owner)


def data_variables(spec: JobSpec, staged: Mapping[str, str]) -> dict[str, str]:
    """Return the variable of each data set: `digits` is WEFT_DATA_DIGITS; `staged` has the folders of fetched ones."""
    found = {}
    for name, place in spec.data.items():
        variable = "WEFT_DATA_" + re.sub(r"[^A-Z0-9]", "_", name.upper())
        if name not in staged and re.match(r"[a-z0-9]+:", place) and not place.startswith("path:"):
            kind = place.partition(":")[0]
            raise UsageError(
                f"data.{name} must be a path, or of a kind that this service fetches, got {kind}:...; name a folder"
            )
        found[variable] = staged.get(name, place.removeprefix("path:"))
    return found


def store_outputs(spec: JobSpec, folder: Path, owner: SystemUser | None = None) -> tuple[str, ...]:
    """Copy the files and folders that a job names as outputs from its code folder; return those that are not there."""
    with acting_as(owner):
        return _copy_outputs(spec, folder)


def _copy_outputs(spec: JobSpec, folder: Path) -> tuple[str, ...]:
    missing = []
    for name, path in spec.outputs.items():
        if re.match(r"[a-z0-9]+://", path):
            continue
        source, target = folder / "code" / path, folder / "outputs" / name
        if not source.exists():
            missing.append(name)
        elif source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True, symlinks=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return tuple(missing)


def read_outcome(folder: Path) -> dict[str, object] | None:
    """Return how the launcher of an attempt says the run ended; None if it does not say."""
    from weft.documents import parse_json

    try:
        found = parse_json((folder / "run" / "outcome.json").read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def last_words(folder: Path, most: int = 2000) -> str:
    """Return the end of what a launcher wrote, for those that end before they run anything."""
    try:
        text = (folder / "launcher.log").read_bytes()[-most:].decode(errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wanted = [line for line in lines if line.startswith(("Error:", "weft:"))]
    return " ".join((wanted or lines)[-3:])
