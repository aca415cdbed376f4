"""The index of the documentation and the site's menu name every page."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def test_the_index_links_every_page() -> None:
    linked = set(re.findall(r"\]\(([a-z0-9/_-]+\.md)", (DOCS / "index.md").read_text()))
    assert linked == PAGES - {"index.md"}


def test_the_menu_names_every_page() -> None:
    menu = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    assert set(re.findall(r"[a-z0-9/_-]+\.md", menu)) == PAGES
