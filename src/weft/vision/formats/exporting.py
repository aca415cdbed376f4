"""Exporting: pictures copied into a folder under names that are safe and unique there."""

from __future__ import annotations

import re
import shutil
from pathlib import Path, PurePosixPath

from weft.errors import PictureError
from weft.vision.records import LabelledPicture

_ODD = re.compile(r"[^\w\-. ()+,=@]+")
_LONGEST_NAME = 120  # characters of a file's name


class Exporter:
    """Copies pictures below one folder; two of the same name get different ones, of different stems."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._taken: dict[str, set[str]] = {}

    def put(self, picture: LabelledPicture, below: str, *, stem: str | None = None) -> str:
        """Copy a picture below a folder; return its path from the export's root, with slashes."""
        taken = self._taken.setdefault(below, set())
        suffix = safe_suffix(picture)
        stem = stem if stem is not None else safe_stem(picture.name)
        unique, number = stem, 1
        while unique.lower() in taken:  # file systems and zips may not tell cases apart
            number += 1
            unique = f"{stem}-{number}"
        taken.add(unique.lower())
        target = self._folder / below / (unique + suffix)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(picture.path, target)
        except OSError as error:
            raise PictureError(f"{picture.path} must be readable to be exported: {error.strerror}") from None
        return f"{below}/{unique}{suffix}" if below else unique + suffix


def safe_stem(name: str) -> str:
    """Return a picture's name without its ending, in characters that every file system takes."""
    stem = _ODD.sub("_", PurePosixPath(name.replace("\\", "/")).stem).strip(" .")[:_LONGEST_NAME]
    return stem or "picture"


def safe_suffix(picture: LabelledPicture) -> str:
    suffix = PurePosixPath(picture.name).suffix.lower()
    return suffix if re.fullmatch(r"\.[a-z0-9]{1,5}", suffix) else picture.path.suffix or ".jpg"
