"""Tracks: a box that a person drew in some frames of a film, in the frames between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.vision.records import Box, LabelledShape


def interpolate_track(
    drawn: Mapping[float, LabelledShape], times_s: Sequence[float]
) -> dict[float, LabelledShape]:
    """Return the box of one object at other times: on the straight line between the frames where it was drawn.

    Times before the first drawn frame and after the last one get none. Boxes between frames are the box alone,
    without polygons: those of two frames need not have the same points.
    """
    keys = sorted(drawn)
    found: dict[float, LabelledShape] = {}
    for time in times_s:
        if time in drawn:
            found[time] = drawn[time]
            continue
        after = bisect_left(keys, time)
        if 0 < after < len(keys):
            found[time] = _between(drawn, keys[after - 1], keys[after], time)
    return found


def _between(drawn: Mapping[float, LabelledShape], before: float, after: float, time: float) -> LabelledShape:
    share = (time - before) / (after - before)
    one, two = drawn[before].box, drawn[after].box
    box: Box = (
        one[0] + share * (two[0] - one[0]),
        one[1] + share * (two[1] - one[1]),
        one[2] + share * (two[2] - one[2]),
        one[3] + share * (two[3] - one[3]),
    )
    return replace(drawn[before], box=box, polygons=(), mask=None, id="")
