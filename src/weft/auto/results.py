"""The files of a finished run beside its model: the ONNX graph, checked, and the report."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from weft.auto.model import AutoModel
from weft.auto.onnx import check_parity, to_onnx
from weft.auto.reading.files import arrow
from weft.auto.report.page import report_html
from weft.auto.report.printing import print_pdf
from weft.files import write_whole

ONNX, HTML, PDF = "model.onnx", "report.html", "report.pdf"
PREDICTIONS = "predictions.csv"


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


def write_predictions(model: AutoModel, folder: Path, source: Any) -> str:
    """Write predictions.csv, with a line for each row of a table, in its order; return a sentence about it."""
    pa = arrow()
    raw = model.raw(model.read(source))
    columns: dict[str, Any] = {"prediction": model.labelled(raw)}
    if model.task.classes is not None:
        columns |= {f"probability of {name}": raw[:, code] for code, name in enumerate(model.task.classes)}
    written = io.BytesIO()
    pa.csv.write_csv(pa.table({name: pa.array(values.tolist()) for name, values in columns.items()}), written)
    write_whole(folder / PREDICTIONS, written.getvalue())
    return f"{folder / PREDICTIONS}: predictions of {len(raw):,} rows of {source}"
