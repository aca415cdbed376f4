"""A snapshot of the working tree that fits into some ConfigMaps: scripts, not data.

ConfigMaps, and not the store of the jobs service: they are there in any cluster, for `weft run` without a service too,
and the pods need neither a way to the service nor a key of it.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import tarfile
from pathlib import Path

from weft.errors import UsageError
from weft.text import format_size

PART_BYTES = 700_000  # of one ConfigMap; an object may have 1 MiB, and a third is lost to base64
MOST_PARTS = 32
LARGEST_BYTES = MOST_PARTS * PART_BYTES  # compressed: the cluster's own database keeps it
_LEFT_OUT = frozenset({"__pycache__", "weft-runs", "node_modules"})


def snapshot(folder: Path) -> bytes:
    """Return the files of a folder as a compressed archive, the same bytes for the same files."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in _files(folder):
            path = folder / name
            if path.is_symlink() or not path.is_file():
                continue
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            if entry.size > 4 * LARGEST_BYTES:
                raise _too_large(folder, f"{name} alone has {format_size(entry.size)}")
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as file:
                archive.addfile(entry, file)
            if raw.tell() > 20 * LARGEST_BYTES:
                raise _too_large(folder, f"more than {format_size(20 * LARGEST_BYTES)} uncompressed")
    packed = gzip.compress(raw.getvalue(), mtime=0)
    if len(packed) > LARGEST_BYTES:
        raise _too_large(folder, format_size(len(packed)))
    return packed


def parts_of(packed: bytes) -> tuple[bytes, ...]:
    """Return a snapshot in parts that each fit into a ConfigMap."""
    return tuple(packed[start : start + PART_BYTES] for start in range(0, len(packed), PART_BYTES)) or (b"",)


def _too_large(folder: Path, got: str) -> UsageError:
    return UsageError(
        f"a snapshot of the code must fit into {MOST_PARTS} ConfigMaps ({format_size(LARGEST_BYTES)} compressed), got "
        f"{got} from {folder}; name large files in .gitignore, or put the code into the image or on a volume"
    )


def _files(folder: Path) -> list[str]:
    """Return the files that git knows or would take; without git, all but hidden ones and our own runs."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=folder,
            capture_output=True,
            timeout=60,
            check=True,
        )
        return sorted({name for name in listed.stdout.decode(errors="surrogateescape").split("\0") if name})
    except (OSError, subprocess.SubprocessError):
        return sorted(
            str(path.relative_to(folder))
            for path in folder.rglob("*")
            if not _is_left_out(path.relative_to(folder))
        )


def _is_left_out(path: Path) -> bool:
    return any(part.startswith(".") or part in _LEFT_OUT for part in path.parts)
