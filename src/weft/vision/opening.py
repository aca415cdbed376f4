"""Opening of data for training: a data set of a library, or a folder, a file or a zip in any supported format."""

from __future__ import annotations

from pathlib import Path

from weft.vision.formats.reading import read
from weft.vision.records import DatasetVersion


def open_data(text: str | Path, library: str | Path | None = None) -> DatasetVersion:
    """Return the version that a text names.

    A path that is there is read in place. Another text is NAME, or NAME@VERSION of a library, which is the user's own
    unless another folder is given.
    """
    if Path(text).exists() or "/" in str(text):
        return read(text)
    from weft.vision.library.library import Library, default_library

    with Library(Path(library) if library is not None else default_library()) as opened:
        return opened.version(str(text))
