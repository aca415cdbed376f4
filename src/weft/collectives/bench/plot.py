"""A picture of a report: bus bandwidth over size, both on logarithmic scales, a line for each backend. Plain SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from weft.collectives.bench.report import Report, Row
from weft.text import format_seconds, format_size, plural

_WIDTH, _HEIGHT = 460, 320  # of the area inside the axes
_LEFT, _TOP, _RIGHT, _BOTTOM = 104, 56, 32, 64
# Told apart also by people who see few colours (Okabe and Ito).
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #333 }
.title { font-size: 15px; font-weight: 600 }
.grid { stroke: #e4e4e4 } .axis { stroke: #888; fill: none }
.line { fill: none; stroke-width: 2.5; stroke-linejoin: round }
"""


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis."""

    least: float
    most: float
    start: float  # pixels
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.least) / math.log(self.most / self.least)
        return round(self.start + share * (self.end - self.start), 1)


def render_svg(report: Report) -> str:
    """The whole picture: a panel for each operation, side by side."""
    operations = list(dict.fromkeys(row.operation for row in report.rows))
    width, height = _LEFT + _WIDTH + _RIGHT, _TOP + _HEIGHT + _BOTTOM
    panels = []
    for number, operation in enumerate(operations):
        rows = [row for row in report.rows if row.operation == operation]
        panel = "\n".join(_panel(rows, report))
        panels.append(f'<g transform="translate({number * width} 0)">\n{panel}\n</g>')
    total = width * len(operations)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="{height}"',
            f' viewBox="0 0 {total} {height}">',
            f"<style>{_STYLE}</style>",
            f'<rect width="{total}" height="{height}" fill="white"/>',
            *panels,
            "</svg>\n",
        ]
    )


def _panel(rows: Sequence[Row], report: Report) -> Iterable[str]:
    sizes = sorted({row.size for row in rows})
    x = Scale(sizes[0] / 1.3, sizes[-1] * 1.3, _LEFT, _LEFT + _WIDTH)
    powers = decades(row.busbw for row in rows)
    y = Scale(powers[0], powers[-1], _TOP + _HEIGHT, _TOP)
    hosts = plural(report.about["hosts"], "host")
    where = f"{report.about['world']} workers on {hosts}, {rows[0].dtype}"
    yield _text(_LEFT, 24, f"{rows[0].operation}, {where}", cls="title")
    for power in powers:
        yield f'<line class="grid" x1="{_LEFT}" y1="{y(power)}" x2="{_LEFT + _WIDTH}" y2="{y(power)}"/>'
        yield _text(_LEFT - 8, y(power) + 4, format_bandwidth(power), anchor="end")
    for size in _sparse(sizes):
        yield f'<line class="grid" x1="{x(size)}" y1="{_TOP}" x2="{x(size)}" y2="{_TOP + _HEIGHT}"/>'
        yield _text(x(size), _TOP + _HEIGHT + 20, format_size(size, trimmed=True), anchor="middle")
    yield f'<path class="axis" d="M{_LEFT} {_TOP}V{_TOP + _HEIGHT}H{_LEFT + _WIDTH}"/>'
    yield _text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 46, "size of the message", anchor="middle")
    middle = _TOP + _HEIGHT / 2
    yield f'<g transform="rotate(-90 18 {middle})">{_text(18, middle, "bus bandwidth", anchor="middle")}</g>'
    backends = list(dict.fromkeys(row.backend for row in rows))
    for number, backend in enumerate(backends):
        colour = _COLOURS[number % len(_COLOURS)]
        own = sorted((row for row in rows if row.backend == backend), key=lambda row: row.size)
        points = " ".join(f"{x(row.size)},{y(row.busbw)}" for row in own)
        yield f'<polyline class="line" stroke="{colour}" points="{points}"/>'
        for row in own:
            time = format_seconds(row.time_s, padded=True)
            told = f"{backend}, {format_size(row.size, trimmed=True)}: {time}, {format_bandwidth(row.busbw)}"
            yield (
                f'<circle cx="{x(row.size)}" cy="{y(row.busbw)}" r="4" fill="{colour}">'
                f"<title>{escape(told)}</title></circle>"
            )
        # Bandwidth grows with size, so the lower right is the emptiest corner.
        left, level = _LEFT + _WIDTH - 150, _TOP + _HEIGHT - 14 - 20 * (len(backends) - 1 - number)
        yield f'<line class="line" stroke="{colour}" x1="{left}" y1="{level}" x2="{left + 24}" y2="{level}"/>'
        yield _text(left + 32, level + 4, backend)


def decades(values: Iterable[float]) -> list[float]:
    """The powers of ten around some values, at least one step."""
    logs = [math.log10(value) for value in values]
    first, last = math.floor(min(logs)), math.ceil(max(logs))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def format_bandwidth(bytes_a_second: float) -> str:
    """`10 MB/s`, `1.25 GB/s`."""
    return f"{format_size(bytes_a_second, decimal=True, trimmed=True)}/s"


def _sparse(sizes: Sequence[int], most: int = 6) -> Sequence[int]:
    """As many as have room for their names."""
    return sizes[:: -(-len(sizes) // most)]


def _text(x: float, y: float, text: str, *, anchor: str = "start", cls: str | None = None) -> str:
    look = f' class="{cls}"' if cls else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{look}>{escape(text)}</text>'
