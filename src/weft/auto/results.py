"""The files of a finished run beside its model: the ONNX graph, checked, and the report."""

from __future__ import annotations

from pathlib import Path

from weft.auto.model import AutoModel
from weft.auto.onnx import check_parity, to_onnx
from weft.auto.report.page import report_html
from weft.auto.report.printing import print_pdf
from weft.files import write_whole

ONNX, HTML, PDF = "model.onnx", "report.html", "report.pdf"


def write_results(model: AutoModel, folder: Path, source: str, *, pdf: bool = False) -> list[str]:
    """Write model.onnx, report.html and, if asked, report.pdf; return a sentence about each."""
    notes = [_write_onnx(model, folder / ONNX, source)]
    html = folder / HTML
    write_whole(html, report_html(model, notes))
    notes.append(f"{html}: leaderboard, explanations and warnings")
    if pdf:
        notes.append(print_pdf(html, folder / PDF))
    return notes


def _write_onnx(model: AutoModel, path: Path, source: str) -> str:
    made = to_onnx(model)
    gap = check_parity(model, made, model.read(source))
    write_whole(path, made.SerializeToString())
    return f"{path}: raw rows in; it answers as the model in Python does (largest difference {gap:.1g})"
