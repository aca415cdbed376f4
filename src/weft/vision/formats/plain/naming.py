"""Pictures as files of labels name them: what is said of each name, and the picture below a folder that it means."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from weft.errors import PictureError
from weft.vision.records import LabelledShape, Split

# What reading a shape may end in, whatever stands in its place; numbers may have more digits than a float holds.
UNREADABLE = (PictureError, ArithmeticError, LookupError, TypeError, ValueError)

# Label Studio puts eight letters before the name of an uploaded picture.
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")


@dataclass(frozen=True, kw_only=True)
class PictureLabels:
    """The labels of one picture, as a file of labels names it."""

    name: str  # or an address
    shapes: tuple[LabelledShape, ...] = ()
    category: str | None = None
    split: Split | None = None
    size: tuple[int, int] | None = None
    relative: bool = False
    problems: tuple[str, ...] = ()


class PictureNames:
    """The pictures below a folder, by what files of labels call them: a path, a name, or a name without its ending."""

    def __init__(self, pictures: Iterable[Path]) -> None:
        self._by_name: dict[str, list[Path]] = defaultdict(list)
        for path in pictures:
            self._by_name[path.name].append(path)
            self._by_name[path.stem].append(path)

    def find(self, name: str, described: Path) -> Path | None:
        """Return the one picture that a file of labels means by a name; None where there is none, or several."""
        name = name.replace("\\", "/").removeprefix("./")
        last = name.rsplit("/", 1)[-1]
        found = self._by_name.get(last, [])
        beside = [one for one in found if one.is_relative_to(described.parent)] or found
        ending = [one for one in beside if one.as_posix().endswith("/" + name)]
        chosen = ending or beside
        return chosen[0] if len(chosen) == 1 else None

    def find_address(self, address: str, described: Path) -> Path | None:
        """Return the picture that an address on a server, or the name that it had before it was uploaded, means."""
        path = _path_of(address)
        plain = path.rsplit("/", 1)[-1]
        names = (address, path, plain, _UPLOADED.sub("", plain, count=1))
        return next((found for name in names if (found := self.find(name, described)) is not None), None)


def _path_of(address: str) -> str:
    """Return the path in an address, or the one that its query names, as in Label Studio's of its own folders."""
    try:
        parts = urlsplit(address)
    except ValueError:  # of brackets that are no IPv6 address
        return address
    query = [part.partition("=")[2] for part in parts.query.split("&") if part]
    return unquote(query[-1] if query else parts.path)
