"""Lines of FfDL's `evaluation-metrics.txt`: JSON objects whose numbers are text.

    {"meta": {"time": 1700000000123}, "grouplabel": "test", "etimes": {"iteration": {"type": "INT", "value": "3"}},
     "values": {"loss": {"type": "FLOAT", "value": "0.1"}}}

is a point of the metric `test/loss` at step 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.jobs.reports.gathered import Gathered, as_number

STEPS = ("iteration", "step", "global_step", "epoch")


def is_emetrics(document: Mapping[str, Any]) -> bool:
    """Return whether a line of JSON is one of FfDL's evaluation metrics."""
    return isinstance(document.get("values"), Mapping) and isinstance(document.get("etimes"), Mapping)


def add_emetrics(document: Mapping[str, Any], found: Gathered, count: int, now_ms: int) -> None:
    """Add the numbers of one line: `grouplabel/name`, at the iteration it tells."""
    times = {name: _value(entry) for name, entry in document["etimes"].items()}
    step = next((int(times[name] or 0) for name in STEPS if times.get(name) is not None), count)
    meta = document.get("meta")
    time_ms = as_number(meta.get("time")) if isinstance(meta, Mapping) else None
    label = str(document.get("grouplabel") or "")
    for name, entry in document["values"].items():
        number = _value(entry)
        if number is not None:
            found.add(f"{label}/{name}" if label else name, step, int(time_ms or now_ms), number)


def _value(entry: Any) -> float | None:
    return as_number(entry.get("value")) if isinstance(entry, Mapping) else as_number(entry)
