"""Metrics of FfDL's jobs: `evaluation_metrics` of a manifest as our metric sources, and the lines of its files.

A pattern of FfDL names what it looks for, as `%{FLOAT:loss}`; it becomes a named group of a regular expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weft.errors import UsageError
from weft.jobs.reports.gathered import Gathered, as_number
from weft.jobs.spec.model import JsonLinesSource, MetricSource, RegexSource, TensorboardSource

METRICS_FILE = "evaluation-metrics.txt"
STEPS = ("iteration", "step", "global_step", "epoch")
_KINDS = {
    "FLOAT": r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)",
    "INT": r"[-+]?\d+",
    "INT_ANY": r"[-+]?\d+",
    "HEX": r"0[xX][0-9a-fA-F]+",
    "TIMESTAMP": r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?",
    "GLOG_STAMP": r"[IWEF]\d{4} \d{2}:\d{2}:\d{2}\.\d+",
}
_NAMED = re.compile(r"%\{(\w+)(?::(\w+))?\}")
_REFERENCE = re.compile(r"\$(\w+)|\$\{(\w+)\}")


def translate(metrics: Mapping[str, Any]) -> tuple[MetricSource, ...]:
    """Return the sources that a manifest's `evaluation_metrics` asks for; UsageError if it is of an unknown kind."""
    kind = str(metrics.get("type", ""))
    place = _inside(str(metrics.get("in", "")))
    if kind == "tensorboard":
        return (TensorboardSource(folder=place or "logs/tb"),)
    if kind in ("emetrics_file", "json_file"):
        return (JsonLinesSource(path=place or METRICS_FILE),)
    if kind == "regex_extractor":
        groups = metrics.get("groups") or {}
        return tuple(RegexSource(pattern=extractor(str(name), group)) for name, group in groups.items())
    if kind in ("", "optivist"):
        return ()
    raise UsageError(
        f"evaluation_metrics.type must be tensorboard, emetrics_file or regex_extractor, got {kind!r}; leave it out"
    )


def extractor(name: str, group: Mapping[str, Any]) -> str:
    """Return the regular expression of one group of a `regex_extractor`; its named groups are metrics.

    FfDL names a metric by a key whose value is a reference, `loss: {type: FLOAT, value: $lossval}`.
    """
    named: dict[str, str] = {}
    for part in ("scalars", "etimes"):
        for key, entry in (group.get(part) or {}).items():
            reference = _REFERENCE.fullmatch(
                str(entry.get("value", "")) if isinstance(entry, Mapping) else ""
            )
            if reference:
                named[reference[1] or reference[2]] = _word(str(key))
    steps = [key for key in (group.get("etimes") or {}) if key in STEPS]

    def replaced(match: re.Match[str]) -> str:
        kind, label = match[1], match[2]
        if kind not in _KINDS:
            known = ", ".join(_KINDS)
            raise UsageError(
                f"groups.{name}.regex must use one of {known}, got %{{{kind}}}; write it as a group"
            )
        if label is None or (label := named.get(label, label if not named else "")) == "":
            return f"(?:{_KINDS[kind]})"
        return f"(?P<{'step' if steps and label == steps[0] else label}>{_KINDS[kind]})"

    pattern = _NAMED.sub(replaced, str(group.get("regex", "")))
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"groups.{name}.regex must be a regular expression, got {group.get('regex')!r} ({error}); correct it"
        ) from error
    return pattern


def _word(text: str) -> str:
    """Return a name that a group of an expression may have."""
    word = re.sub(r"\W", "_", text)
    return word if word[:1].isalpha() else f"_{word}"


def _inside(place: str) -> str:
    """Return a place below the working folder; FfDL's folders for logs and state are there."""
    text = re.sub(r"\$\{?JOB_STATE_DIR\}?", ".job", place)
    return re.sub(r"\$\{?LOG_DIR\}?", ".job/logs", text).lstrip("/")


# -- lines of evaluation-metrics.txt ------------------------------------------------------------------------------


def is_emetrics(document: Mapping[str, Any]) -> bool:
    """Whether a line of JSON is one of FfDL's evaluation metrics."""
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
