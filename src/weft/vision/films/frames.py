"""Frames of a film: the ones nearest to given times, upright, in one pass or by seeking where they are far apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import PictureError
from weft.vision.films.probing import Film, frames_of, opened, quarter_turns
from weft.vision.pictures.decoding import Pixels

MOST_FRAMES = 10_000  # that are captured at once
SEEK_S = 5.0  # ahead, from which on seeking is quicker than decoding what lies between


def frame_times(
    film: Film, *, times_s: Sequence[float] = (), every_s: float | None = None
) -> tuple[float, ...]:
    """Return the times at which frames are to be captured; those outside of the film are refused."""
    if (every_s is None) == (not times_s):
        raise PictureError(
            "frames must be captured at times or every so many seconds, got both or none; say one"
        )
    if every_s is not None:
        if not every_s > 0:
            raise PictureError(f"frames must be more than 0 seconds apart, got {every_s}")
        if film.duration_s / every_s >= MOST_FRAMES:
            raise PictureError(
                f"at most {MOST_FRAMES} frames can be captured at once, got more of {film.duration_s:.0f} s at every "
                f"{every_s:g} s; ask for fewer"
            )
        count = int(film.duration_s / every_s) + 1
        times = tuple(
            number * every_s for number in range(count) if number * every_s < max(film.duration_s, 1e-9)
        )
    else:
        times = tuple(sorted(set(times_s)))
        if times[0] < 0 or times[-1] > film.duration_s + 1 / max(film.frames_per_s, 1):
            raise PictureError(
                f"times must be from 0 to {film.duration_s:.3f} s, got {times[0]} to {times[-1]}"
            )
    if len(times) > MOST_FRAMES:
        raise PictureError(
            f"at most {MOST_FRAMES} frames can be captured at once, got {len(times)}; ask for fewer"
        )
    return times


def capture_frames(path: Path, times_s: Sequence[float], name: str = "") -> Iterator[tuple[float, Pixels]]:
    """Yield for each time the last frame that has begun by then: its own time and its pixels; none twice."""
    wanted = sorted(times_s)
    with opened(path, name or path.name) as (container, stream):
        start_s = float((stream.start_time or 0) * stream.time_base)
        shown: Any = None
        last_s = -1.0
        place, sought = 0, -1
        frames = frames_of(container, stream, name or path.name)
        while place < len(wanted):
            shown_s = _time_s(shown, start_s)
            # Once for each time: the picture before it that can be decoded alone may be far back.
            if shown is not None and wanted[place] - shown_s > SEEK_S and sought != place:
                sought = place
                container.seek(
                    int((wanted[place] + start_s) / stream.time_base), stream=stream, backward=True
                )
                frames, shown = frames_of(container, stream, name or path.name), None
            following = next(frames, None)
            while place < len(wanted) and (
                following is None
                or (shown is not None and wanted[place] < _time_s(following, start_s) - 1e-6)
            ):
                if shown is None:
                    return
                time_s = _time_s(shown, start_s)
                if time_s > last_s:
                    last_s = time_s
                    yield time_s, upright_pixels(shown)
                place += 1
            shown = following


def _time_s(frame: Any, start_s: float) -> float:
    return 0.0 if frame is None or frame.time is None else float(frame.time) - start_s


def upright_pixels(frame: Any) -> Pixels:
    """Return the pixels of a frame as a player shows them: RGB, turned as its film says."""
    pixels = np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)
    turns = quarter_turns(frame)
    return np.ascontiguousarray(np.rot90(pixels, -turns)) if turns else pixels
