"""A hook of mkdocs: puts the tables of benchmarks/results into docs/why/figures.md when the pages are built."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.claims import markdown, parts

MARK = "<!-- claims -->"


def on_page_markdown(text: str, **_: Any) -> str:
    """Replace the mark of a page by every table of claims."""
    return text.replace(MARK, "\n".join(map(markdown, parts()))) if MARK in text else text
