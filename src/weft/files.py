"""Files that others may read while we write them, and the folder for what we may lose."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or what was there before, even if we are killed."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(text)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)  # of a disk that is full


def cache_folder(kind: str) -> Path:
    """Where what can be found out again is kept from run to run."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / kind
