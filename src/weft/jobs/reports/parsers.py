"""Parsers of what jobs write: each turns a piece of a file into points; none keeps state of its own.

A parser says how much of a piece is whole (`whole`), and reads that much (`parse`). The state that reading a file
needs, as the number of points so far, travels in its `Position`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from weft.jobs.reports.emetrics import add_emetrics, is_emetrics
from weft.jobs.reports.gathered import Gathered, Position, as_number
from weft.jobs.spec.model import RegexSource

_DECODER = msgspec.json.Decoder()
_LINE_ENDS = re.compile(rb"[\r\n]+")
_STEP_NAMES = ("step", "global_step", "iteration", "epoch")
_TIME_NAMES = ("time_ms", "timestamp", "time")


class Parser(Protocol):
    """Reads one kind of file."""

    def whole(self, data: bytes) -> int:
        """Return how many bytes of a piece can be read now."""
        ...

    def parse(self, data: bytes, position: Position, now_ms: int) -> tuple[Gathered, Position]:
        """Return what a whole piece holds, and the position after it."""
        ...


def whole_lines(data: bytes) -> int:
    """Return the length of the whole lines at the start of a piece."""
    return data.rfind(b"\n") + 1


@dataclass(frozen=True)
class RankLines:
    """Lines of `weft.log` (see `weft.reporting.lines`), from the file of one rank."""

    rank: int

    def whole(self, data: bytes) -> int:
        return whole_lines(data)

    def parse(self, data: bytes, position: Position, now_ms: int) -> tuple[Gathered, Position]:
        found = Gathered()
        for line in _documents(data, found):
            try:
                time_ms, step, values, *more = line
                rank = int(more[0]) if more else self.rank
                if step is None:
                    _progress(values, found)
                    continue
                for name, value in values.items():
                    found.add(name, step, time_ms, value, rank)
            except (TypeError, ValueError, AttributeError):
                found.skipped += 1
        return found, position.after(len(data))


def _progress(values: dict[str, Any], found: Gathered) -> None:
    progress = as_number(values.get("progress"))
    if progress is not None and 0 <= progress <= 1:
        found.progress = progress
    text = values.get("text")
    if "acted" in values:
        found.acts.append(f"{values.get('action')}: {text}"[:1000])
    elif isinstance(text, str):
        found.text = text[:1000]


def _documents(data: bytes, found: Gathered) -> Sequence[Any]:
    """Return the JSON documents of lines, one each, NaN as Python writes it; a broken line costs only itself."""
    try:
        return _DECODER.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    documents = []
    for line in data.splitlines():
        try:
            if line.strip():
                documents.append(json.loads(line))
        except ValueError:
            found.skipped += 1
    return documents


@dataclass(frozen=True)
class JsonLines:
    """Lines of JSON objects: `{"step": 3, "loss": 0.2}`; all that is a number and neither step nor time is a metric.

    Lines of FfDL's `evaluation-metrics.txt` are known by their form.
    """

    rank: int = 0
    first: int = 0  # the step of a first line that has none

    def whole(self, data: bytes) -> int:
        return whole_lines(data)

    def parse(self, data: bytes, position: Position, now_ms: int) -> tuple[Gathered, Position]:
        found, count = Gathered(), position.count
        for document in _documents(self.lines_of(data), found):
            if not isinstance(document, dict):
                found.skipped += 1
                continue
            if is_emetrics(document):
                add_emetrics(document, found, count, now_ms)
                count += 1
                continue
            flat = dict(_flattened(document))
            step_name = next((name for name in _STEP_NAMES if _is_step(flat.get(name))), None)
            step = int(flat[step_name]) if step_name else self.first + count
            time_name = next((name for name in _TIME_NAMES if _is_number(flat.get(name))), None)
            time_ms = _milliseconds(flat[time_name], time_name) if time_name else now_ms
            count += 1
            for name, value in flat.items():
                if name not in (step_name, time_name) and _is_number(value):
                    found.add(name, step, time_ms, value, self.rank)
        return found, position.after(len(data), count)

    def lines_of(self, data: bytes) -> bytes:
        """Return the lines that may be of JSON."""
        return data


class PrintedJson(JsonLines):
    """Lines of JSON objects among others that a rank prints; those without a step are counted from 1."""

    @classmethod
    def of(cls, rank: int) -> PrintedJson:
        """Return the parser of what a rank prints."""
        return cls(rank, first=1)

    def lines_of(self, data: bytes) -> bytes:
        """Return the lines that begin and end as an object does."""
        lines = (line.strip() for line in _LINE_ENDS.split(data))
        return b"\n".join(line for line in lines if line[:1] == b"{" and line[-1:] == b"}")


def _flattened(document: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    items: list[tuple[str, Any]] = []
    for name, value in document.items():
        if isinstance(value, dict) and len(prefix) < 200:
            items += _flattened(value, f"{prefix}{name}/")
        else:
            items.append((prefix + name, value))
    return items


def _is_number(value: Any) -> bool:
    if isinstance(value, str):
        return value in ("NaN", "Infinity", "-Infinity")
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_step(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and float(value).is_integer()


def _milliseconds(value: Any, name: str) -> int:
    """Return a time in milliseconds; one of less than a hundred thousand million is in seconds."""
    number = as_number(value) or 0.0
    return int(number) if name.endswith("_ms") or number > 1e11 else int(1000 * number)


@dataclass(frozen=True)
class OutputPattern:
    """Lines of a rank's output that match a regular expression; its named groups are metrics, `step` is the step."""

    pattern: re.Pattern[bytes]
    rank: int
    prefix: str = ""  # train: the group loss is the metric train/loss

    @classmethod
    def of(cls, source: RegexSource, rank: int) -> OutputPattern:
        return cls(re.compile(source.pattern.encode()), rank, f"{source.prefix}/" if source.prefix else "")

    def whole(self, data: bytes) -> int:
        return max(data.rfind(b"\n"), data.rfind(b"\r")) + 1

    def parse(self, data: bytes, position: Position, now_ms: int) -> tuple[Gathered, Position]:
        found, count = Gathered(), position.count
        for line in _LINE_ENDS.split(data):
            for match in self.pattern.finditer(line):
                groups = {name: text for name, text in match.groupdict().items() if text is not None}
                step, count = _step_in(groups, count), count + 1
                for name, text in groups.items():
                    if name not in _STEP_NAMES[:3]:
                        value = text.decode(errors="replace").strip(" ,;:%")
                        found.add(self.prefix + name, step, now_ms, value, self.rank)
        return found, position.after(len(data), count)


def _step_in(groups: dict[str, bytes], count: int) -> int:
    for name in _STEP_NAMES[:3]:
        number = as_number(groups[name].decode(errors="replace")) if name in groups else None
        if number is not None and number.is_integer():
            return int(number)
    return count


@dataclass(frozen=True)
class SystemLines:
    """Lines of `system.jsonl` (see `weft.launch.control.usage_log`): what a run uses of its hosts.

    Bytes of several hosts are added up and shares averaged; each host then has curves of its own, too. The step is the
    time in seconds.
    """

    def whole(self, data: bytes) -> int:
        return whole_lines(data)

    def parse(self, data: bytes, position: Position, now_ms: int) -> tuple[Gathered, Position]:
        found = Gathered()
        for line in _documents(data, found):
            try:
                time_ms, hosts = line
                for name, values in _by_metric(hosts).items():
                    total = sum(values.values())
                    joined = total if "bytes" in name else total / len(values)
                    found.add(f"system/{name}", time_ms // 1000, time_ms, joined)
                    for host, value in values.items() if len(hosts) > 1 else ():
                        found.add(f"system/{name}@{host}", time_ms // 1000, time_ms, value)
            except (TypeError, ValueError, AttributeError):
                found.skipped += 1
        return found, position.after(len(data))


def _by_metric(hosts: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    metrics: dict[str, dict[str, float]] = {}
    for host, values in hosts.items():
        for name, value in values.items():
            metrics.setdefault(name, {})[host] = float(value)
    return metrics
