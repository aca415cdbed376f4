"""Checkpoints on disk:

    DIR/step-00000120/part-0-of-2/    what one member wrote, with a manifest, part.json
                      part-1-of-2/
                      .metadata       for torch's own tools: dcp.load(..., checkpoint_id="DIR/step-00000120")

A part is written under another name and renamed when it is whole. A checkpoint counts when all its parts are there,
of one attempt; what is less is ignored, and removed when a newer one is whole. What is in a part: `dcp.py`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import WeftError

MANIFEST = "part.json"
_STEP = re.compile(r"step-(\d{8,})")
_PART = re.compile(r"part-(\d+)-of-(\d+)")
_PART_DRAFT = re.compile(r"\.part-\d+-of-\d+\.[0-9a-f]{8}")
_METADATA = re.compile(r"\.metadata(\.[0-9a-f]{8})?")  # and its draft
_CHUNK_BYTES = 8 << 20
_STALE_S = 86400.0


class TornError(WeftError):
    """A checkpoint whose bytes are not those that were written."""


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint that has all its parts."""

    step: int
    folder: Path
    parts: tuple[Path, ...]
    about: dict[str, Any]  # the first part's manifest; empty if one of them is not what was written


# -- writing ---------------------------------------------------------------------------------------


def add_part(
    directory: Path, about: Mapping[str, Any], index: int, parts: int, fill: Callable[[Path], None]
) -> SavedCheckpoint | None:
    """Have a folder filled, and make it a part; gives the checkpoint if it was the last that it lacked."""
    folder = directory / f"step-{about['step']:08d}"
    draft = folder / f".part-{index}-of-{parts}.{secrets.token_hex(4)}"
    try:
        draft.mkdir(parents=True)
        fill(draft)
        _seal(draft, {**about, "part": index, "parts": parts})
        _put_in_place(draft, folder / f"part-{index}-of-{parts}")
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    saved = look(folder, about["step"])
    return saved if saved is not None and saved.about else None


def _seal(folder: Path, about: Mapping[str, Any]) -> None:
    """Write the manifest, with checksums of all that is there."""
    files = {path.name: _checksum(path) for path in sorted(folder.iterdir())}
    manifest = {**about, "files": files}
    manifest["checksum"] = _sum_of(manifest)
    with (folder / MANIFEST).open("w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


def _sum_of(manifest: Mapping[str, Any]) -> str:
    counted = {name: value for name, value in manifest.items() if name != "checksum"}
    return f"{zlib.crc32(json.dumps(counted, sort_keys=True).encode()):08x}"


def _checksum(path: Path) -> str:
    value = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            value = zlib.crc32(chunk, value)
    return f"{value:08x}"


def _put_in_place(draft: Path, place: Path) -> None:
    """Rename a part; one that has its name is of an attempt that failed, or the run would have resumed from it."""
    if place.exists():
        old = place.with_name(f".{place.name}.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):
            place.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    draft.rename(place)
    descriptor = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- finding ---------------------------------------------------------------------------------------


def find(directory: Path) -> list[SavedCheckpoint]:
    """The checkpoints that are whole, the newest first."""
    found = [saved for step, folder in _folders(directory) if (saved := look(folder, step)) is not None]
    return sorted(found, key=lambda saved: saved.step, reverse=True)


def look(folder: Path, step: int) -> SavedCheckpoint | None:
    """The checkpoint in a folder, if all its parts are there."""
    by_size: dict[int, dict[int, Path]] = {}
    with suppress(OSError):
        for path in folder.iterdir():
            if match := _PART.fullmatch(path.name):
                by_size.setdefault(int(match[2]), {})[int(match[1])] = path
    for size, paths in by_size.items():
        if len(paths) == size:
            parts = tuple(paths[index] for index in range(size))
            manifests = [_manifest(part) for part in parts]
            attempts = {manifest.get("attempt") for manifest in manifests}
            if len(attempts - {None}) <= 1:
                return SavedCheckpoint(step, folder, parts, manifests[0] if None not in attempts else {})
    return None


def _folders(directory: Path) -> list[tuple[int, Path]]:
    try:
        return [
            (int(match[1]), path)
            for path in directory.iterdir()
            if (match := _STEP.fullmatch(path.name)) is not None
        ]
    except FileNotFoundError:
        return []


def checkpoint_file(directory: Path) -> str | None:
    """Return the file that shows that a folder is itself a checkpoint, and no folder of checkpoints."""
    with suppress(OSError):
        names = sorted(path.name for path in directory.iterdir())
        return next((name for name in names if name == ".metadata" or _PART.fullmatch(name)), None)
    return None


def _manifest(part: Path) -> dict[str, Any]:
    """A part's manifest; empty if it is not what was written."""
    try:
        manifest: dict[str, Any] = json.loads((part / MANIFEST).read_text())
        return manifest if manifest.get("checksum") == _sum_of(manifest) else {}
    except (OSError, ValueError, AttributeError):
        return {}


def verify(saved: SavedCheckpoint) -> None:
    """Raise TornError if the bytes of a part are not those that were written."""
    if not saved.about:
        raise TornError(f"every part of {saved.folder} must have its {MANIFEST}, got one that is torn")
    for part in saved.parts:
        for name, checksum in _manifest(part).get("files", {}).items():
            try:
                found = _checksum(part / name)
            except OSError as error:
                raise TornError(f"{part / name} must be readable, got {error}") from error
            if found != checksum:
                raise TornError(f"{part / name} must have checksum {checksum}, got {found}")


def sweep(directory: Path, newest: int, keep: int) -> None:
    """Remove what is older than the last `keep` whole ones up to the newest, and what never became whole."""
    whole = [saved.step for saved in find(directory) if saved.about and saved.step <= newest]
    kept = whole[:keep]
    for step, folder in _folders(directory):
        if step < newest and step not in kept:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove the parts, the drafts and the metadata of a checkpoint, and its folder where nothing else is in it."""
    with suppress(OSError):
        for path in folder.iterdir():
            if _PART.fullmatch(path.name) or _PART_DRAFT.fullmatch(path.name):
                shutil.rmtree(path, ignore_errors=True)
            elif _METADATA.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()


# -- disks -----------------------------------------------------------------------------------------


def disk_of(directory: Path, run: str) -> int:
    """A number that is the same for all who see the same disk here: who comes first leaves it in a file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f".disk-{run}"
    if not path.exists():
        for old in directory.glob(".disk-*"):
            with suppress(OSError):
                if time.time() - old.stat().st_mtime > _STALE_S:
                    old.unlink()
        draft = directory / f".draft-{secrets.token_hex(4)}"
        draft.write_text(str(secrets.randbits(62)))
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
    return int(path.read_text())
