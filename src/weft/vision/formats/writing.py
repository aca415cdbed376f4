"""Writing of a version into a folder or a zip, in one of the formats; whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weft.errors import PictureError
from weft.files import drafting
from weft.text import suggestion
from weft.vision.formats.archives import pack
from weft.vision.formats.coco import write_coco
from weft.vision.formats.ibm import write_ibm
from weft.vision.formats.plain.class_folders import write_class_folders
from weft.vision.formats.voc import write_voc
from weft.vision.formats.yolo import write_yolo
from weft.vision.records import DatasetVersion

_WRITERS: dict[str, Callable[[DatasetVersion, Path], None]] = {
    "folders": write_class_folders,
    "coco": write_coco,
    "yolo": write_yolo,
    "voc": write_voc,
    "ibm": write_ibm,
}
FORMATS = tuple(_WRITERS)


def write(version: DatasetVersion, path: str | Path, format: str = "coco") -> Path:
    """Write a version; a path that ends in .zip becomes a zip, another one a folder, which must not be there yet."""
    path = Path(path)
    if format not in _WRITERS:
        raise PictureError(
            f"the format must be one of {', '.join(FORMATS)}, got {format!r}; {suggestion(format, FORMATS)}"
        )
    if path.exists():
        raise PictureError(f"{path} must not be there yet; choose another name or remove it")
    path.parent.mkdir(parents=True, exist_ok=True)
    with drafting(path.parent, ".export-") as draft:
        name = "".join(letter if letter.isalnum() or letter in "-_. " else "_" for letter in version.name)
        whole = draft / (name.strip(" .") or "data")
        whole.mkdir()
        _WRITERS[format](version, whole)
        if path.suffix.lower() == ".zip":
            packed = draft.with_name(draft.name + ".zip")
            try:
                pack(draft, packed)
                packed.replace(path)
            finally:
                packed.unlink(missing_ok=True)
        else:
            whole.rename(path)
    return path
