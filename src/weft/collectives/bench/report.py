"""The report of `weft bench`: rows, the table of them, and the lines by which rank 0 hands them to the launcher."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from weft.collectives.bench.plan import BUS_FACTORS, OURS
from weft.text import format_seconds, format_size, format_table, plural

# Before each line of data on a worker's standard output. The launcher keeps that output in the run directory whatever
# machine the worker is on; a file of the worker's own would stay on its host.
MARK = "weft-bench "


@dataclass(frozen=True, kw_only=True)
class Row:
    """One operation at one size by one backend."""

    operation: str
    size: int  # bytes
    count: int  # elements in what one rank gives to the call
    dtype: str
    backend: str
    world: int
    times_s: tuple[float, ...]  # of one call each; a call takes as long as its slowest rank
    wrong: int = 0  # elements, on all ranks together

    @property
    def time_s(self) -> float:
        return statistics.median(self.times_s)

    @property
    def least_s(self) -> float:
        return min(self.times_s)

    @property
    def algbw(self) -> float:
        """Bytes a second, as the caller sees it."""
        return self.size / self.time_s

    @property
    def busbw(self) -> float:
        """Bytes a second through the busiest link, as the hardware sees it."""
        return self.algbw * BUS_FACTORS[self.operation](self.world)

    def to_json(self) -> dict[str, Any]:
        derived = {"time_s": self.time_s, "min_s": self.least_s, "algbw": self.algbw, "busbw": self.busbw}
        return asdict(self) | derived

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Row:
        fields = {name: data[name] for name in cls.__dataclass_fields__}
        return cls(**fields | {"times_s": tuple(fields["times_s"])})


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """Everything one run has measured."""

    rows: tuple[Row, ...]
    about: dict[str, Any]  # world, hosts, versions, threads, what was asked for

    @property
    def wrong(self) -> int:
        return sum(row.wrong for row in self.rows)

    def ours(self, row: Row) -> Row | None:
        """Our own row beside a rival's."""
        same = (other for other in self.rows if (other.operation, other.size) == (row.operation, row.size))
        return next((other for other in same if other.backend == OURS and row.backend != OURS), None)

    def to_json(self) -> dict[str, Any]:
        return self.about | {"rows": [row.to_json() for row in self.rows]}


def data_line(kind: str, data: object) -> str:
    """One finding, for `read_report` to find in a log."""
    return f"{MARK}{json.dumps({kind: data})}"


def find_data(lines: Iterable[str]) -> list[tuple[str, Any]]:
    """The findings in a worker's log, in their order."""
    found = [json.loads(line.removeprefix(MARK)) for line in lines if line.startswith(MARK)]
    return [(kind, data) for entry in found for kind, data in entry.items()]


def read_report(log: str) -> BenchReport:
    """The report that rank 0 left in its log."""
    about: dict[str, Any] = {}
    rows = []
    for kind, data in find_data(log.splitlines()):
        if kind == "about":
            about = data
        elif kind == "row":
            rows.append(Row.from_json(data))
    return BenchReport(rows=tuple(rows), about=about)


_HEADS = ("size", "count", "dtype", "backend", "time", "min", "algbw", "busbw", "wrong", "weft is")
_LEFT = {"dtype", "backend", "weft is"}


def render_report(report: BenchReport) -> str:
    """The table, a part for each operation."""
    about = report.about
    hosts = plural(about["hosts"], "host")
    lines = []
    for operation in dict.fromkeys(row.operation for row in report.rows):
        rows = [row for row in report.rows if row.operation == operation]
        samples = len(rows[0].times_s)
        lines.append(
            f"{operation}: {about['world']} workers on {hosts}; time is the median of {samples}, bandwidths in GB/s"
        )
        lines += format_table([_HEADS, *(_cells(row, report) for row in rows)], _LEFT)
        lines.append("")
    return "\n".join(lines[:-1])


def _cells(row: Row, report: BenchReport) -> tuple[str, ...]:
    ours = report.ours(row)
    return (
        format_size(row.size, trimmed=True),
        str(row.count),
        row.dtype,
        row.backend,
        format_seconds(row.time_s, padded=True),
        format_seconds(row.least_s, padded=True),
        f"{row.algbw / 1e9:#.3g}",
        f"{row.busbw / 1e9:#.3g}",
        str(row.wrong),
        _compared(row.time_s / ours.time_s) if ours else "",
    )


def _compared(ratio: float) -> str:
    """Return how a rival's time stands to ours, in words that cannot be read the wrong way round."""
    return f"{ratio:.2f}x faster" if ratio >= 1 else f"{1 / ratio:.2f}x slower"
