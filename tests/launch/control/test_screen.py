"""What a run shows and keeps, before there is a run directory and after."""

from __future__ import annotations

import io
from pathlib import Path

from weft.launch.agent.protocol import HostUsed, WorkerOutput
from weft.launch.control.screen import RunScreen


def test_nothing_is_said_or_kept_before_there_is_a_run_directory(tmp_path: Path) -> None:
    screen = RunScreen(io.BytesIO(), most_workers=2)
    screen.say("too early")
    screen.keep_usage("a", HostUsed(1, {"cpu": 0.5}))
    screen.close()
    assert not screen.is_open
    assert list(tmp_path.iterdir()) == []


def test_output_goes_to_the_terminal_and_to_the_log_of_its_rank(tmp_path: Path) -> None:
    out = io.BytesIO()
    screen = RunScreen(out, most_workers=2)
    screen.open(tmp_path)
    screen.write(WorkerOutput(1, "out", "loss 0.5\n"))
    screen.keep_usage("a", HostUsed(1, {"cpu": 0.5}))
    screen.keep_usage("a", HostUsed(2, {"cpu": 0.7}))
    screen.close()
    assert screen.is_open
    assert b"[1]" in out.getvalue()
    assert out.getvalue().endswith(b"loss 0.5\n")
    assert (tmp_path / "rank-1.log").read_text() == "loss 0.5\n"
    assert "0.5" in (tmp_path / "metrics" / "system.jsonl").read_text()
