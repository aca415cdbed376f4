"""Pictures at addresses: lists of URLs, one a line, fetched into a data set of a library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from weft.errors import PictureError
from weft.serve.server.pictures.fetching import checked_url, fetch
from weft.serve.server.refusal import RefusalError

if TYPE_CHECKING:
    from weft.vision.library.library import Library

LARGEST_FETCHED = 100 << 20  # bytes of a picture at an address
LARGEST_LIST = 16 << 20  # bytes of a list
EVERYWHERE = ("0.0.0.0/0", "::/0")  # networks that a person's own list may point into


def read_url_list(path: Path) -> tuple[str, ...]:
    """Return the URLs of a text file: one a line; empty lines and lines that begin with # are passed over."""
    if path.stat().st_size > LARGEST_LIST:
        raise PictureError(
            f"a list of URLs must have at most {LARGEST_LIST} bytes, got {path.stat().st_size}"
        )
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise PictureError(f"{path.name} must be text with one URL a line, got other bytes") from None
    found = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            found.append(str(checked_url(text)))
        except RefusalError as error:
            raise PictureError(f"line {number} of {path.name}: {error}") from None
    if not found:
        raise PictureError(f"{path.name} must have a URL a line, got none; write https://...")
    return tuple(found)


def add_from_urls(
    library: Library,
    dataset: str,
    urls: Sequence[str],
    *,
    skip_duplicates: bool = False,
    allowed: Sequence[str] = (),
    report: Callable[[int, int], object] = lambda done, total: None,
    user: str | None = None,
) -> tuple[int, list[str]]:
    """Add the picture at each URL; return how many were added, and a sentence for each that was not.

    `allowed` networks may be private; without them only public addresses are asked.
    """
    problems: list[str] = []
    for number, url in enumerate(urls, 1):
        name = unquote(Path(urlsplit(url).path).name) or "picture"
        try:
            data = fetch(url, LARGEST_FETCHED, allowed)
            library.add(dataset, data, name, skip_duplicates=skip_duplicates, user=user)
        except (PictureError, RefusalError) as error:
            problems.append(f"{url[:200]}: {error}")
        report(number, len(urls))
    return len(urls) - len(problems), problems
