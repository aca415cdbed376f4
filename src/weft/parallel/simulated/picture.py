"""A picture of scaling: share of time computing over hosts, a line for each kind, and where one takes over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft import svg
from weft.parallel.simulated.scaling import ScalingPoint, takeovers
from weft.svg import PALETTE, Legend, Panel, Tick
from weft.text import format_seconds

_WIDTH, _HEIGHT = 560, 320  # pixels: the area inside the axes
_LEFT, _RIGHT, _BOTTOM, _TITLE = 104, 32, 56, 48  # pixels around that area


def render_svg(points: Sequence[ScalingPoint], title: str, about: str) -> str:
    """Draw the scaling of a model."""
    kinds = list(dict.fromkeys(kind for point in points for kind, _ in point.by_kind))
    colours = {kind: PALETTE[number % len(PALETTE)] for number, kind in enumerate(kinds)}
    legend = Legend(tuple(colours.items()), _WIDTH)
    top = _TITLE + legend.height + 28
    panel = Panel(_LEFT, top, _WIDTH, _HEIGHT)
    elements = [
        svg.text(_LEFT, 26, title, cls="title"),
        svg.text(_LEFT, 44, about, cls="small"),
        *legend.draw(_LEFT, _TITLE + 18),
        *_chart(points, panel, colours),
    ]
    return svg.document(_LEFT + _WIDTH + _RIGHT, top + _HEIGHT + _BOTTOM, elements)


def _chart(points: Sequence[ScalingPoint], panel: Panel, colours: dict[str, str]) -> Iterator[str]:
    across = panel.across(points[0].hosts / 1.2, points[-1].hosts * 1.2, logarithmic=True)
    upward = panel.upward(0.0, 1.0)
    yield from panel.y_axis(
        upward, (Tick(share / 100, f"{share} %") for share in range(0, 101, 20)), "computing"
    )
    yield from panel.x_axis(across, (Tick(point.hosts, str(point.hosts)) for point in points), "hosts")
    for kind, colour in colours.items():
        places = [(point.hosts, found) for point in points if (found := point.of(kind)) is not None]
        yield svg.curve([(across(hosts), upward(each.computing_share)) for hosts, each in places], colour)
        for hosts, each in places:
            text = f"{each.way} on {hosts} hosts: {format_seconds(each.step_s)}, {each.computing_share:.0%} computing"
            yield svg.dot(across(hosts), upward(each.computing_share), colour, tooltip=text)
    for hosts, before, kind in takeovers(points):
        x = across(hosts)
        yield svg.dashes(
            x,
            panel.top,
            panel.bottom,
            colours[kind],
            tooltip=f"{kind} takes over from {before} at {hosts} hosts",
        )
        yield svg.text(x + 4, panel.top + 12, kind, cls="small")
    yield panel.frame()
