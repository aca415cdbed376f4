"""Pictures of a report: bars of importance, curves of dependence, calibration."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft import svg
from weft.auto.explaining import ColumnImportance, Dependence

BAR_PX = 22
COLOUR, SECOND = svg.PALETTE[0], svg.PALETTE[1]


def round_values(least: float, most: float, count: int = 4) -> list[float]:
    """Return round numbers within a range, about so many."""
    span = most - least
    if span <= 0 or not math.isfinite(span):
        return [least]
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * unit for unit in (1, 2, 5, 10) if power * unit >= rough)
    first = math.ceil(least / step - 1e-9)
    return [number * step for number in range(first, math.floor(most / step + 1e-9) + 1)]


def _ticks(values: Sequence[float]) -> list[svg.Tick]:
    return [svg.Tick(value, f"{value:.4g}") for value in values]


def importance_picture(found: Sequence[ColumnImportance], unit: str) -> str:
    """Return bars of mean absolute Shapley values, the most important column first."""
    shown = list(found)[:15]
    most = max((one.mean_shapley for one in shown), default=0.0) or 1.0
    panel = svg.Panel(190, 12, 440, BAR_PX * len(shown))
    scale = panel.across(0.0, most)
    parts = list(panel.x_axis(scale, _ticks(round_values(0.0, most)), f"mean absolute effect on the {unit}"))
    for place, one in enumerate(shown):
        top = panel.top + place * BAR_PX
        tip = f"{one.name}: {one.mean_shapley:.4g}; without it the loss grows by {one.loss_growth:.4g}"
        parts.append(
            svg.bar(panel.left, top + 4, scale(one.mean_shapley), BAR_PX - 8, COLOUR, tooltip=tip, least=1)
        )
        parts.append(
            svg.text(panel.left - 8, top + 15, svg.fit(one.name, 175), anchor="end", tooltip=one.name)
        )
    return svg.document(660, panel.bottom + 50, [*parts, panel.frame()])


def dependence_picture(found: Dependence, kind: str, span: tuple[float, float]) -> str:
    """Return the mean prediction over the values of a column; all pictures share the vertical `span`."""
    panel = svg.Panel(92, 34, 210, 130)
    low, high = span if span[1] > span[0] else (span[0] - 0.5, span[1] + 0.5)
    up = panel.upward(low, high)
    title = svg.text(10, 18, svg.fit(found.column, 300, svg.TITLE_PX), cls="title", tooltip=found.column)
    parts = [title, *panel.y_axis(up, _ticks(round_values(low, high)))]
    parts += _bars(panel, up, found, low) if kind == "text" else _line(panel, up, found, kind)
    return svg.document(340, 210, [*parts, panel.frame()])


def _line(panel: svg.Panel, up: svg.Scale, found: Dependence, kind: str) -> list[str]:
    values = [float(value) for value in found.values]
    least, most = min(values), max(values)
    scale = panel.across(least, most if most > least else least + 1)
    if kind == "date":
        ticks = [svg.Tick(value, str(np.datetime64(int(value), "s"))[:7]) for value in (least, most)]
    else:
        ticks = _ticks(round_values(least, most, 5))
    points = [(scale(value), up(mean)) for value, mean in zip(values, found.means, strict=True)]
    marks = [
        svg.dot(x, y, COLOUR, tooltip=f"{value:.5g}: {mean:.4g}")
        for (x, y), value, mean in zip(points, values, found.means, strict=True)
    ]
    return [*panel.x_axis(scale, ticks), svg.curve(points, COLOUR), *(marks if len(marks) < 8 else [])]


def _bars(panel: svg.Panel, up: svg.Scale, found: Dependence, low: float) -> list[str]:
    """Draw a dot on a stem for each category: its mean prediction."""
    parts = []
    room = panel.width / max(1, len(found.values))
    for place, (value, mean) in enumerate(zip(found.values, found.means, strict=True)):
        x = panel.left + room * (place + 0.5)
        parts.append(svg.line(x, up(low), x, up(mean), stroke=COLOUR))
        parts.append(svg.dot(x, up(mean), COLOUR, tooltip=f"{value}: {mean:.4g}"))
        name = svg.fit(str(value), room - 2, svg.SMALL_PX)
        parts.append(svg.text(x, panel.bottom + 18, name, anchor="middle", cls="small", tooltip=str(value)))
    return parts


def calibration_picture(found: Sequence[tuple[float, float, int]]) -> str:
    """Return the share of rows that are true over the probability that was predicted; the diagonal is perfect."""
    panel = svg.Panel(92, 16, 240, 240)
    across, up = panel.across(0.0, 1.0), panel.upward(0.0, 1.0)
    ticks = _ticks([0.0, 0.25, 0.5, 0.75, 1.0])
    points = [(across(mean), up(share)) for mean, share, _ in found]
    dots = [
        svg.dot(x, y, COLOUR, tooltip=f"predicted {mean:.3f}, true {share:.3f}, {rows} rows")
        for (x, y), (mean, share, rows) in zip(points, found, strict=True)
    ]
    return svg.document(
        360,
        310,
        [
            *panel.x_axis(across, ticks, "predicted probability"),
            *panel.y_axis(up, ticks, "share that is true"),
            svg.line(across(0), up(0), across(1), up(1), stroke=SECOND),
            svg.curve(points, COLOUR),
            *dots,
            panel.frame(),
        ],
    )
