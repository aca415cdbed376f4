"""Found pictures: what a reader of a format knows of them before any picture has been opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weft.errors import PictureError
from weft.text import format_size
from weft.vision.pictures.headers import PICTURE_SUFFIXES
from weft.vision.records import LabelledShape, Split

LARGEST_TEXT = 64 << 20  # bytes of one file of labels
LARGEST_JSON = 1 << 30  # bytes of a COCO file
SPLIT_WORDS: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
LITTER = frozenset((".ds_store", "thumbs.db", "ehthumbs.db", "desktop.ini"))  # of file managers
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


@dataclass(frozen=True, kw_only=True)
class FoundPicture:
    """One picture of a data set outside of any library, with its labels as its format tells them."""

    name: str  # as it was imported at first
    path: Path
    split: Split | None = None  # None: the format does not say
    category: str | None = None
    category_confidence: float | None = None
    shapes: tuple[LabelledShape, ...] = ()
    relative: bool = False  # coordinates are shares of the picture's sides
    size: tuple[int, int] | None = None  # width and height, as the format tells them
    metadata: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    film: str | None = None
    time_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class FoundSet:
    """A data set outside of any library."""

    name: str
    format: str
    pictures: tuple[FoundPicture, ...]
    labels: tuple[str, ...] = ()  # in the order of class indices
    categories: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()  # a sentence for each thing that had to be left out


# Endings of pictures that are not read: they are told, so that nobody looks for them in vain.
UNREAD_SUFFIXES = frozenset(
    (".heic", ".heif", ".avif", ".jp2", ".j2k", ".jxl", ".svg", ".psd", ".eps", ".exr", ".hdr", ".tga")
    + (".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2")
)


def unread_pictures(folder: Path) -> tuple[str, ...]:
    """Return a sentence for each kind of picture below a folder that cannot be read."""
    found = Counter(
        path.suffix.lower()
        for path in folder.rglob("*")
        if path.suffix.lower() in UNREAD_SUFFIXES and not path.name.startswith(".") and path.is_file()
    )
    return tuple(
        f"pictures must be JPEG, PNG, WebP, GIF, BMP or TIFF, got {count} of {suffix}; convert them"
        for suffix, count in sorted(found.items())
    )


def is_litter(name: str) -> bool:
    """Return whether a file or a folder of this name is what systems leave about, and nobody's data."""
    return name.startswith((".", "__MACOSX")) or name.lower() in LITTER


def is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURE_SUFFIXES and not path.name.startswith(".")


def is_there(path: Path) -> bool:
    """Return whether a file or a folder is there; names from strangers may be none that a file system takes."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def pictures_below(folder: Path) -> Iterator[Path]:
    """Yield the pictures of a folder and of those in it, in the order of their names; links are not followed."""
    inner = []
    for path in sorted(folder.iterdir()):
        if path.is_symlink() and not path.is_file():
            continue
        if path.is_dir():
            if not path.name.startswith((".", "__MACOSX")):
                inner.append(path)
        elif is_picture(path):
            yield path
    for path in inner:
        yield from pictures_below(path)


def split_of(path: Path) -> Split | None:
    """Return the split that a folder of a path names, the innermost first."""
    for part in reversed(path.parts):
        if part.lower() in SPLIT_WORDS:
            return SPLIT_WORDS[part.lower()]
    return None


def text_of(path: Path, most_bytes: int = LARGEST_TEXT) -> str:
    """Return a file of labels as text; one that is too large or no UTF-8 is refused."""
    try:
        if path.stat().st_size > most_bytes:
            raise PictureError(
                f"{path.name} must have at most {format_size(most_bytes, trimmed=True)} to be a file of labels"
            )
        return path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PictureError(f"{path.name} must be a readable file of labels in UTF-8: {error}") from None


def in_order(known: tuple[str, ...], used: set[str]) -> tuple[str, ...]:
    """Return names in a given order, then those that only pictures use, sorted."""
    return (*known, *sorted(used - set(known)))
