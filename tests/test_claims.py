"""The tables of claims: whole, in order, and judged by their goals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks import claims

ROOT = Path(__file__).resolve().parent.parent
PARTS = claims.parts()


def test_every_claim_names_a_script_that_is_there_and_a_commit() -> None:
    for part in PARTS:
        for claim in part.claims:
            (script,) = re.findall(r"benchmarks/\w+\.py", claim.command)
            assert (ROOT / script).exists(), claim
            assert re.fullmatch(r"[0-9a-f]{7,}", claim.commit), claim
            assert re.fullmatch(r"2\d{3}-\d\d-\d\d", claim.date), claim


@pytest.mark.parametrize("part", PARTS, ids=lambda part: str(part.name))
def test_names_are_used_once_and_goals_can_be_judged(part: claims.Part) -> None:
    names = [claim.name for claim in part.claims]
    assert len(names) == len(set(names))
    assert all(claim.verdict() in ("met", "missed") for claim in part.claims if claim.goal)
    assert len(claims.markdown(part).splitlines()) == len(names) + 6


def test_what_was_measured_stands_beside_what_was_recorded() -> None:
    table = claims.report("launch", {"local": 2.0})
    assert "2 " in table
    assert "missed" in table
    assert "0.12" in table
    with pytest.raises(ValueError, match="must belong to claims of launch, got speed"):
        claims.report("launch", {"speed": 1.0})


def test_every_part_is_printed_by_a_benchmark() -> None:
    """A benchmark ends with the table of its claims, by the name of the part."""
    sources = "".join(path.read_text() for path in (ROOT / "benchmarks").rglob("*.py"))
    missing = [part.name for part in PARTS if f'"{part.name}"' not in sources]
    assert missing == []
