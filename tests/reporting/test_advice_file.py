"""Advice that reaches a script: read once, answered by an act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.jobs.reports.gathered import Position
from weft.jobs.reports.parsers import RankLines
from weft.jobs.service.attempts.carrying import add_advice
from weft.reporting.advice import AdviceFile
from weft.reporting.lines import encode_entry


def test_advice_is_given_once_and_in_whole_lines(tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    advice = AdviceFile(str(tmp_path / "advice.jsonl"), told.append)
    assert advice.new() == ()
    add_advice(tmp_path, "halve-rate", "divergence", "it diverges", None)
    add_advice(tmp_path, "clip", "exploding-gradients", "it explodes", None)
    first, second = advice.new()
    assert (first.number, first.action, first.rule, second.number) == (1, "halve-rate", "divergence", 2)
    with (tmp_path / "advice.jsonl").open("a") as file:
        file.write("nonsense\n" + json.dumps({"number": 3, "action": "clip", "rule": "r", "text": "t"}))
        file.flush()
        assert advice.new() == ()  # the rest of the line has not come
        file.write("\n")
    assert [one.number for one in advice.new()] == [3]
    first.done("the rate is 0.05")
    assert told == [{"acted": 1, "action": "halve-rate", "text": "the rate is 0.05"}]


def test_an_act_of_the_script_is_told_apart_from_its_text() -> None:
    line = encode_entry((0, None, {"acted": 1, "action": "clip", "text": "norms are clipped at 1"}), None)
    found, _ = RankLines(0).parse(line, Position(), 0)
    assert (found.acts, found.text) == (["clip: norms are clipped at 1"], None)


def test_without_a_service_there_is_no_advice() -> None:
    assert AdviceFile(None, lambda _: None).new() == ()
