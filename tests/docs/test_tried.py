"""The page on what was tried against Weft: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_test_that_the_page_names_is_there() -> None:
    named = NAMED.findall((ROOT / "docs" / "why" / "tried.md").read_text())
    assert len(named) > 80
    missing = [(file, name) for file, name in named if f"def {name}(" not in (ROOT / file).read_text()]
    assert not missing


def test_every_row_names_one() -> None:
    rows = [
        line for line in (ROOT / "docs" / "why" / "tried.md").read_text().splitlines() if line[:2] == "| "
    ]
    assert [row for row in rows if not row.startswith("| tried ") and not NAMED.search(row)] == []
