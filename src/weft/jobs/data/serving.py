"""A served model: the command of its server, and what the server's metrics say. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class ServingFigures:
    """The load and latency of a served model, or of one version of it, since it was loaded."""

    requests: int = 0
    failures: int = 0
    in_flight: int = 0
    versions: tuple[int, ...] = ()  # loaded now
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


def serve_command(python: str, *, store: Path, model: str, alias: str, ready_file: Path) -> tuple[str, ...]:
    """Return the command that serves what an alias means, on any port of this machine, and follows the alias."""
    return (
        *(python, "-P", "-m", "weft", "serve", f"{model}@{alias}", "--store", str(store)),
        *("--host", "127.0.0.1", "--port", "0", "--no-grpc", "--detect-url", "--ready-file", str(ready_file)),
    )


def figures_by_version(text: str) -> dict[int, ServingFigures]:
    """Return the figures of each version that a server's /metrics names, for a canary beside what it may replace."""
    named = {
        labels.get("version", "")
        for labels in (dict(_LABEL.findall(found)) for _, found, _ in _SAMPLE.findall(text))
    }
    return {int(version): parse_figures(text, version) for version in sorted(named) if version.isdecimal()}


def parse_figures(text: str, only: str | None = None) -> ServingFigures:
    """Return the figures in a server's /metrics, of all versions or of one."""
    sums: dict[str, float] = {}
    buckets: dict[float, float] = {}
    versions: set[int] = set()
    for name, labels_text, value_text in _SAMPLE.findall(text):
        labels = dict(_LABEL.findall(labels_text))
        if only is not None and labels.get("version") != only:
            continue
        try:
            value = float(value_text)
        except ValueError:
            continue
        sums[name] = sums.get(name, 0.0) + value
        if name == "weft_request_seconds_bucket":
            bound = float(labels.get("le", "+Inf").replace("+Inf", "inf"))
            buckets[bound] = buckets.get(bound, 0.0) + value
        if name == "weft_model_ready" and value and labels.get("version", "").isdecimal():
            versions.add(int(labels["version"]))
    return ServingFigures(
        requests=int(sums.get("weft_requests_total", 0)),
        failures=int(sums.get("weft_failures_total", 0)),
        in_flight=int(sums.get("weft_in_flight", 0)),
        versions=tuple(sorted(versions)),
        **dict(zip(("p50_ms", "p95_ms", "p99_ms"), quantiles(buckets, (0.5, 0.95, 0.99)), strict=True)),
    )


def quantiles(buckets: Mapping[float, float], shares: Sequence[float]) -> list[float | None]:
    """Return quantiles in milliseconds from cumulative counts by upper bound in seconds, straight within a bucket."""
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    found: list[float | None] = []
    for share in shares:
        wanted, lower, before = share * total, 0.0, 0.0
        answer: float | None = None
        for bound in bounds:
            if total and buckets[bound] >= wanted:
                part = (wanted - before) / (buckets[bound] - before) if buckets[bound] > before else 1.0
                answer = 1000 * (lower if bound == float("inf") else lower + (bound - lower) * part)
                break
            lower, before = bound, buckets[bound]
        found.append(answer)
    return found
