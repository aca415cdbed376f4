"""The web pages of the jobs service: TypeScript sources in `web/`, built into `pages/` by `make pages`."""

from __future__ import annotations

from pathlib import Path

__all__ = ["pages", "pages_folder"]


def pages() -> Path | None:
    """Return the folder of the built pages, or None where they have not been built.

    `index.html` answers every path of the console; files under `assets/` have names that change with their content.
    """
    folder = pages_folder()
    return folder if (folder / "index.html").is_file() else None


def pages_folder() -> Path:
    """Return the folder in which the pages are, or will be once they are built."""
    return Path(__file__).with_name("pages")
