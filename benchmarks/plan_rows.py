"""Rows of benchmarks/plan.py: kept between runs in a file, and what the claims make of them. Pure but for the file."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
BEST_WITHIN = 1.05  # a choice is right if its way takes at most so many times as long as the best measured


def read_rows(path: Path | None) -> list[Row]:
    """Return the rows that earlier runs have left in a file."""
    if path is None or not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def replaced(rows: Sequence[Row], newer: Sequence[Row]) -> list[Row]:
    """Return rows with those of a newer run; a case that was measured again loses all its earlier rows."""
    again = {(row["part"], row["case"]) for row in newer}
    return [row for row in rows if (row["part"], row["case"]) not in again] + list(newer)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """Return what the claims are about."""
    by_part: dict[str, list[Row]] = {}
    for row in rows:
        by_part.setdefault(row["part"], []).append(row)
    found = _shares(by_part.get("share", ()))
    budget = {row["name"]: row["measured_s"] for row in by_part.get("budget", ())}
    if budget:
        found["budget"] = budget["gloo"] / budget["chosen"]
    found |= _predicted(by_part.get("predict", ()), "")
    found |= _predicted(by_part.get("unseen", ()), "unseen-")
    ddp = {row["name"]: row["measured_s"] for row in by_part.get("ddp", ())}
    if ddp:
        found["plan-beside-ddp"] = ddp["chosen"] / ddp["ddp"]
    for row in by_part.get("bound", ()):
        found[f"bound-{row['name']}"] = row["measured_s"] / row["predicted_s"]
    return found


def _shares(rows: Iterable[Row]) -> dict[str, float]:
    """Return the step of workers that exchange nothing, by the step of each way, as percentages."""
    rows = list(rows)
    alone = {row["case"]: row["measured_s"] for row in rows if row["name"] == "alone"}
    return {
        f"{'share' if row['name'] == 'chosen' else row['name']}-{row['case']}": 100
        * alone[row["case"]]
        / row["measured_s"]
        for row in rows
        if row["name"] != "alone"
    }


def _predicted(rows: Iterable[Row], prefix: str) -> dict[str, float]:
    """Return errors over all combinations of model, way, rate and hosts, each once, and how many choices are right."""
    predicted = [row for row in rows if row["predicted_s"]]
    if not predicted:
        return {}
    cases: dict[str, dict[str, float]] = {}
    for row in predicted:
        cases.setdefault(row["case"], {})[row["name"]] = row["measured_s"]
    errors = [abs(error(row)) for row in predicted if not row["same"]]
    right = [times["chosen"] <= BEST_WITHIN * min(times.values()) for times in cases.values()]
    return {
        f"{prefix}combinations": float(len(errors)),
        f"{prefix}error-median": 100 * statistics.median(errors),
        f"{prefix}error-worst": 100 * max(errors),
        f"{prefix}choices-right": 100 * sum(right) / len(right),
    }


def error(row: Row) -> float:
    """Return by how much of the measured step a prediction is too long."""
    return float(row["predicted_s"] / row["measured_s"] - 1)
