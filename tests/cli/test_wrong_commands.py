"""Wrong command lines, drawn from the parsers: each is refused in words, with exit code 2, and changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from testing.wrong_commands.lines import verbs

from weft.cli import values

TOOL = Path(__file__).parents[2] / "tools" / "wrong_commands.py"


def outcome(*args: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(TOOL), "--json", *args], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_all_refused(found: dict[str, Any], least: int) -> None:
    told = [(one["finding"], one["line"]["argv"], one["told"][-500:]) for one in found["findings"]]
    assert told == []
    assert found["counts"]["invocations"] >= least


def test_wrong_commands_of_the_light_verbs_are_refused() -> None:
    assert_all_refused(outcome("--light", "--count", "600", "--processes", "3"), 500)


@pytest.mark.long
@pytest.mark.timeout(900)  # 2,200 calls take 30 s of a processor, and minutes of a busy one
def test_wrong_commands_of_every_verb_are_refused() -> None:
    assert_all_refused(outcome("--count", "2200", "--processes", "20"), 2000)


def test_every_number_and_path_has_a_type_of_ours() -> None:
    """Click's own types let nan, inf and any magnitude through, and do not say what to write."""
    theirs = (click.types.IntParamType, click.types.FloatParamType, click.Path, click.File)
    wrong = [
        f"weft {verb.name} {param.name}"
        for verb in verbs()
        for param in verb.command.params
        if isinstance(param.type, theirs) and not getattr(param, "is_flag", False)
    ]
    assert wrong == []
    assert any(isinstance(param.type, values.Whole) for verb in verbs() for param in verb.command.params)
