"""The examples of weft.learn, run as their docstrings say."""

from __future__ import annotations

import os
import re
import runpy
from pathlib import Path

import onnxruntime
import pytest
from testing.forking.server import TABLES, ForkServer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_two_workers_agree(tmp_path: Path, forks: ForkServer) -> None:
    command = ["run", "-n", "2", str(EXAMPLES / "learn_together.py")]
    done = forks.load(*TABLES).run(command, env=os.environ, cwd=tmp_path, timeout=280)
    assert done.returncode == 0, done.stderr
    found = re.findall(r"rank (\d): accuracy ([\d.]+), features that matter: (.*)", done.stdout)
    assert sorted(rank for rank, _, _ in found) == ["0", "1"]
    assert all(float(right) > 0.6 and names == "[0, 1, 2]" for _, right, names in found)


def test_a_model_explains_itself_and_travels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    monkeypatch.setattr("sys.argv", ["learn_explained.py", str(path)])
    names = runpy.run_path(str(EXAMPLES / "learn_explained.py"))
    assert re.search(r"^x0 +\d", capsys.readouterr().out, re.MULTILINE)
    session = onnxruntime.InferenceSession(path)
    (labels,) = session.run(["label"], {"X": names["X"]})
    assert (labels == names["model"].predict(names["X"])).all()
