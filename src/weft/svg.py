"""Charts as plain SVG text: scales, axes, legends and marks that any browser shows, on a light page or a dark one.

A chart is a list of elements, each a string. `Panel` is the area inside the axes and draws them; a `Scale` maps values
to pixels; `document` puts the elements together with the style that all charts share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

# Told apart also by people who see few colours (Okabe and Ito), and bright enough for a dark page.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c8c8c")
TITLE_PX, TEXT_PX, SMALL_PX = 15, 12, 11  # sizes of letters
SWATCH_PX = 12  # the coloured square of a legend's entry
LEGEND_ROW_PX = 18
_EM = 0.56  # the width of an average letter, as a part of its size
_STYLE = f"""
svg {{ --page: #ffffff; --ink: #222222; --soft: #5f5f5f; --grid: #e6e6e6; --axis: #8a8a8a; --quiet: #d9d9d9 }}
@media (prefers-color-scheme: dark) {{
svg {{ --page: #16181c; --ink: #ececec; --soft: #a9adb3; --grid: #2c3036; --axis: #6d737b; --quiet: #4a5058 }}
}}
text {{ font: {TEXT_PX}px system-ui, sans-serif; fill: var(--ink) }}
.title {{ font-size: {TITLE_PX}px; font-weight: 600 }} .small {{ font-size: {SMALL_PX}px; fill: var(--soft) }}
.page {{ fill: var(--page) }} .ink {{ fill: var(--ink) }} .quiet {{ fill: var(--quiet) }}
.grid {{ stroke: var(--grid) }} .axis {{ stroke: var(--axis); fill: none }}
.curve {{ fill: none; stroke-width: 2.5; stroke-linejoin: round; stroke-linecap: round }}
"""


@dataclass(frozen=True)
class Scale:
    """A map from values to pixels, linear or logarithmic; values outside of its range are drawn at its ends."""

    least: float
    most: float
    start: float  # pixels, of the least value
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        if self.logarithmic:
            share = math.log(value / self.least) / math.log(self.most / self.least)
        else:
            share = (value - self.least) / max(self.most - self.least, 1e-9)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 1)


@dataclass(frozen=True)
class Tick:
    """A place on an axis and the label that stands there."""

    value: float
    label: str


@dataclass(frozen=True)
class Panel:
    """The area inside the axes of one chart, in pixels of the picture."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, least: float, most: float, *, logarithmic: bool = False) -> Scale:
        """Return a horizontal scale of this area."""
        return Scale(least, most, self.left, self.right, logarithmic)

    def upward(self, least: float, most: float, *, logarithmic: bool = False) -> Scale:
        """Return a vertical scale of this area, the least value at the bottom."""
        return Scale(least, most, self.bottom, self.top, logarithmic)

    def x_axis(self, scale: Scale, ticks: Iterable[Tick], label: str = "") -> Iterator[str]:
        """Draw grid lines with their labels below, and the name of the axis below those."""
        for tick in ticks:
            x = scale(tick.value)
            yield line(x, self.top, x, self.bottom, cls="grid")
            yield text(x, self.bottom + 18, tick.label, anchor="middle", cls="small")
        if label:
            yield text(self.left + self.width / 2, self.bottom + 38, label, anchor="middle", cls="small")

    def y_axis(self, scale: Scale, ticks: Iterable[Tick], label: str = "") -> Iterator[str]:
        """Draw grid lines with their labels at the left, and the name of the axis upright beside them."""
        for tick in ticks:
            y = scale(tick.value)
            yield line(self.left, y, self.right, y, cls="grid")
            yield text(self.left - 8, y + 4, tick.label, anchor="end", cls="small")
        if label:
            x, y = self.left - 84, self.top + self.height / 2
            upright = text(x, y, label, anchor="middle", cls="small")
            yield f'<g transform="rotate(-90 {x:g} {y:g})">{upright}</g>'

    def frame(self) -> str:
        """Draw the left and the lower edge; after the marks, so that the edges lie on top of them."""
        return f'<path class="axis" d="M{self.left:g} {self.top:g}V{self.bottom:g}H{self.right:g}"/>'


def document(width: float, height: float, elements: Iterable[str]) -> str:
    """Return a whole SVG file of a size in pixels."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}"',
            f' viewBox="0 0 {width:g} {height:g}">',
            f"<style>{_STYLE}</style>",
            f'<rect class="page" width="{width:g}" height="{height:g}"/>',
            *elements,
            "</svg>\n",
        ]
    )


# -- marks -----------------------------------------------------------------------------------------


def text(x: float, y: float, content: str, *, anchor: str = "start", cls: str = "", tooltip: str = "") -> str:
    """Draw text whose base line is at y."""
    head = f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{_class(cls)}>'
    return f"{head}{escape(content)}{_tooltip(tooltip)}</text>"


def line(x1: float, y1: float, x2: float, y2: float, *, cls: str = "", stroke: str = "") -> str:
    look = f' stroke="{stroke}"' if stroke else ""
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{_class(cls)}{look}/>'


def bar(
    left: float, y: float, right: float, height: float, colour: str, *, tooltip: str = "", least: float = 0.0
) -> str:
    """Draw a horizontal bar, at least so many pixels wide; a colour that is a class name begins with a dot."""
    width = round(max(least, right - left), 1)
    place = f'x="{left:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f"<rect {place}{_fill(colour)}>{_tooltip(tooltip)}</rect>"


def curve(points: Sequence[tuple[float, float]], colour: str) -> str:
    """Draw a line through points."""
    places = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline class="curve" stroke="{colour}" points="{places}"/>'


def dot(x: float, y: float, colour: str, *, tooltip: str = "") -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{colour}">{_tooltip(tooltip)}</circle>'


def triangle(x: float, y: float, colour: str, *, tooltip: str = "") -> str:
    """Draw a small triangle that stands on y."""
    return f'<path d="M{x - 5:g} {y:g}l5 -9l5 9z"{_fill(colour)}>{_tooltip(tooltip)}</path>'


def dashes(x: float, top: float, bottom: float, colour: str, *, tooltip: str = "") -> str:
    """Draw a dashed upright line."""
    path = f'<path d="M{x:g} {top:g}V{bottom:g}" stroke="{colour}" stroke-dasharray="3 2">'
    return f"{path}{_tooltip(tooltip)}</path>"


@dataclass(frozen=True)
class Legend:
    """Names with their colours, in as many rows as they need in a width."""

    entries: tuple[tuple[str, str], ...]  # name, colour
    width: float = math.inf

    @property
    def height(self) -> float:
        return LEGEND_ROW_PX * (1 + max((row for _, row, *_ in self._places()), default=0))

    def draw(self, x: float, y: float) -> Iterator[str]:
        """Draw coloured squares and names; x and y are where the first row begins, at its base line."""
        for across, row, name, colour in self._places():
            left, base = x + across, y + row * LEGEND_ROW_PX
            yield bar(left, base - SWATCH_PX + 2, left + SWATCH_PX, SWATCH_PX, colour)
            yield text(left + SWATCH_PX + 5, base, name, cls="small")

    def _places(self) -> Iterator[tuple[float, int, str, str]]:
        """(pixels from the left, row, name, colour) of each entry."""
        across, row = 0.0, 0
        for name, colour in self.entries:
            width = SWATCH_PX + 5 + text_width(name, SMALL_PX)
            if across and across + width > self.width:
                across, row = 0.0, row + 1
            yield across, row, name, colour
            across += width + 16


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _fill(colour: str) -> str:
    return _class(colour[1:]) if colour.startswith(".") else f' fill="{colour}"'


def _tooltip(content: str) -> str:
    return f"<title>{escape(content)}</title>" if content else ""


# -- ticks and labels ------------------------------------------------------------------------------


def round_ticks(length: float, steps: Sequence[float], most: int = 10) -> list[float]:
    """Multiples of the smallest step that leaves at most so many of them in [0, length]."""
    step = next((step for step in steps if length / step <= most), length / most)
    return [number * step for number in range(int(length / step + 1e-6) + 1)] if step > 0 else [0.0]


def decades(values: Iterable[float]) -> list[float]:
    """The powers of ten around some values, at least two."""
    logs = [math.log10(value) for value in values]
    first, last = math.floor(min(logs)), math.ceil(max(logs))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def text_width(content: str, size_px: float = TEXT_PX) -> float:
    """The width of a text in pixels, roughly: browsers differ in their fonts."""
    return len(content) * size_px * _EM


def fit(content: str, width_px: float, size_px: float = TEXT_PX) -> str:
    """The text, cut short with an ellipsis where it is wider than its room."""
    most = int(width_px / (size_px * _EM))
    return content if len(content) <= most else content[: max(1, most - 1)] + "…"
