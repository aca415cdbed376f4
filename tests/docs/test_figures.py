"""Figures that a page quotes are those of benchmarks/results: `0.34<!-- recovery kill --> s` names part and claim."""

from __future__ import annotations

import re

import pytest
from benchmarks import claims
from tests.docs.snippets import PAGES, ROOT

QUOTED = re.compile(r"([0-9][0-9.,]*) ?(%?)<!-- ([\w-]+) ([\w.-]+) -->")
FIGURES = {(part.name, claim.name): claim.figure for part in claims.parts() for claim in part.claims}
FOUND = [
    (str(page.relative_to(ROOT)), *found) for page in PAGES for found in QUOTED.findall(page.read_text())
]


@pytest.mark.parametrize(("page", "text", "unit", "part", "name"), FOUND)
def test_a_quoted_figure_is_the_recorded_one(page: str, text: str, unit: str, part: str, name: str) -> None:
    shown = text.replace(",", "")
    digits = len(shown.partition(".")[2])
    recorded = FIGURES[part, name] * (100 if unit else 1)
    assert float(shown) == round(recorded, digits), f"{page} quotes {text} for {part} {name}, got {recorded}"


def test_pages_quote_figures() -> None:
    assert FOUND
