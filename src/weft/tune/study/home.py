"""The folder of this user's studies, and the studies in it by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from weft.files import data_folder
from weft.text import suggestion
from weft.tune.study.config import StudyMissing
from weft.tune.study.journal import FILE, has_begun


def studies_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of all studies: studies in WEFT_HOME, else in weft in the user's folder for data."""
    given = environ.get("WEFT_HOME")
    return (Path(given) if given else data_folder(environ)) / "studies"


def list_studies(folder: Path) -> list[str]:
    """Return the names of the studies in a folder, those changed last first."""
    found = [path for path in folder.iterdir() if has_begun(path)] if folder.is_dir() else []
    return [p.name for p in sorted(found, key=lambda p: (-(p / FILE).stat().st_mtime_ns, p.name))]


def find_study(name: str, folder: Path) -> Path:
    """Return the folder of a study by name."""
    known = list_studies(folder)
    if name not in known:
        raise StudyMissing(
            f"a study must exist, got {name}; {suggestion(name, known) if known else 'weft tune makes one'}"
        )
    return folder / name
