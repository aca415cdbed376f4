"""The example of weft.auto, run as its docstring says."""

from __future__ import annotations

import runpy
from pathlib import Path

import onnxruntime
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_orders_become_a_graph_of_raw_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["auto_orders.py", str(tmp_path / "orders.csv")])
    runpy.run_path(str(EXAMPLES / "auto_orders.py"))
    said = capsys.readouterr().out
    assert "warning: order is left out as an identifier" in said
    assert "first orders: " in said
    session = onnxruntime.InferenceSession(tmp_path / "orders.onnx")
    assert [one.name for one in session.get_inputs()] == ["carrier", "weight_kg", "sent", "note"]
    assert (tmp_path / "orders.csv").read_text().count("\n") == 401
