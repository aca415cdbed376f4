"""A picture of a report: bus bandwidth over size, both on logarithmic scales, a line for each backend. Plain SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from weft import svg
from weft.collectives.bench.report import BenchReport, Row
from weft.svg import PALETTE, Legend, Panel, Scale, Tick
from weft.text import format_seconds, format_size, plural

_WIDTH, _HEIGHT = 460, 320  # pixels: the area inside the axes
_LEFT, _RIGHT, _BOTTOM = 104, 32, 56  # pixels around that area
_TITLE = 48  # pixels: the title and what was measured, above the legend
_MOST_SIZES = 6  # labels of sizes that have room below the axis
_SIZE_MARGIN = 1.3  # the axis goes on beyond the smallest and the largest size by this factor


def render_svg(report: BenchReport) -> str:
    """Draw a panel for each operation, side by side."""
    operations = list(dict.fromkeys(row.operation for row in report.rows))
    colours = _colours(report.rows)
    legend = Legend(tuple(colours.items()), _WIDTH)
    width, height = _LEFT + _WIDTH + _RIGHT, _TITLE + legend.height + 20 + _HEIGHT + _BOTTOM
    panels = []
    for number, operation in enumerate(operations):
        rows = [row for row in report.rows if row.operation == operation]
        panel = Panel(_LEFT, _TITLE + legend.height + 20, _WIDTH, _HEIGHT)
        heads = [*_heads(rows, report), *legend.draw(_LEFT, _TITLE + 18)]
        chart = "\n".join([*heads, *_chart(rows, panel, colours)])
        panels.append(f'<g transform="translate({number * width} 0)">\n{chart}\n</g>')
    return svg.document(width * len(operations), height, panels)


def _heads(rows: Sequence[Row], report: BenchReport) -> Iterator[str]:
    hosts = plural(report.about["hosts"], "host")
    where = f"{report.about['world']} workers on {hosts}, {rows[0].dtype}"
    yield svg.text(_LEFT, 26, rows[0].operation, cls="title")
    yield svg.text(_LEFT, 44, where, cls="small")


def _chart(rows: Sequence[Row], panel: Panel, colours: Mapping[str, str]) -> Iterator[str]:
    sizes = sorted({row.size for row in rows})
    size = panel.across(sizes[0] / _SIZE_MARGIN, sizes[-1] * _SIZE_MARGIN, logarithmic=True)
    powers = svg.decades(row.busbw for row in rows)
    bandwidth = panel.upward(powers[0], powers[-1], logarithmic=True)
    yield from panel.y_axis(
        bandwidth, (Tick(power, format_bandwidth(power)) for power in powers), "bus bandwidth"
    )
    labels = (Tick(value, format_size(value, trimmed=True)) for value in _sparse(sizes))
    yield from panel.x_axis(size, labels, "size of the message")
    for backend, colour in colours.items():
        yield from _curve([row for row in rows if row.backend == backend], size, bandwidth, colour)
    yield panel.frame()


def _colours(rows: Sequence[Row]) -> dict[str, str]:
    backends = dict.fromkeys(row.backend for row in rows)
    return {backend: PALETTE[number % len(PALETTE)] for number, backend in enumerate(backends)}


def _curve(rows: Sequence[Row], size: Scale, bandwidth: Scale, colour: str) -> Iterator[str]:
    """The line of one backend; each point tells its figures to a mouse that rests on it."""
    rows = sorted(rows, key=lambda row: row.size)
    if not rows:  # this backend does not do this operation
        return
    yield svg.curve([(size(row.size), bandwidth(row.busbw)) for row in rows], colour)
    for row in rows:
        figures = f"{format_seconds(row.time_s, padded=True)}, {format_bandwidth(row.busbw)}"
        text = f"{row.backend}, {format_size(row.size, trimmed=True)}: {figures}"
        yield svg.dot(size(row.size), bandwidth(row.busbw), colour, tooltip=text)


def format_bandwidth(bytes_a_second: float) -> str:
    """`10 MB/s`, `1.25 GB/s`."""
    return f"{format_size(bytes_a_second, decimal=True, trimmed=True)}/s"


def _sparse(sizes: Sequence[int]) -> Sequence[int]:
    """As many sizes as have room for their labels, evenly."""
    return sizes[:: -(-len(sizes) // _MOST_SIZES)]
