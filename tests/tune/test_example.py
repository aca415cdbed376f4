"""The example of a study: its file can be used, and its script goes on where it was."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from testing.forking.server import TABLES, ForkServer

from weft.tune.study.config import check_command, check_config, read_config

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "tune"


def test_the_script_goes_on_from_its_checkpoint(tmp_path: Path, forks: ForkServer) -> None:
    config = read_config(EXAMPLE / "study.yaml")
    check_command(config, check_config(config))
    env = {**os.environ, "WEFT_CHECKPOINT": str(tmp_path / "saved"), "WEFT_RUN_DIR": str(tmp_path)}
    env.pop("WEFT_METRICS", None)
    for epochs in ("1", "2"):
        command = [forks.load(*TABLES).python, str(EXAMPLE / "train.py"), "--lr", "0.05", "--epochs", epochs]
        subprocess.run(command, env=env, cwd=tmp_path, check=True, timeout=200)
    lines = [json.loads(line) for line in (tmp_path / "metrics" / "rank-0.jsonl").read_text().splitlines()]
    assert [line[1] for line in lines] == [1, 2]  # each epoch once
    assert lines[-1][2]["accuracy"] > 0.8
