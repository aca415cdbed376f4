"""Short clips of films: some frames, evenly apart, small, as the network for actions takes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from weft.vision.films import capture_frames, probe_film

Array = np.ndarray[Any, Any]
FRAMES = 8  # of a clip
EVERY_S = 0.2  # between the frames of a clip
CLIP_S = FRAMES * EVERY_S
STEP_S = CLIP_S / 2  # between the clips of a film that is looked at
SIDE = 128  # pixels of a frame, which is stretched to a square


@dataclass(frozen=True)
class MarkedAction:
    """A stretch of a film in which something happens."""

    film: Path
    label: str
    start_s: float
    end_s: float


def clip_starts(start_s: float, end_s: float, step_s: float = STEP_S) -> tuple[float, ...]:
    """Return where the clips of a stretch begin; a stretch that is shorter than a clip has one about its middle."""
    if end_s - start_s <= CLIP_S:
        return (max(0.0, (start_s + end_s - CLIP_S) / 2),)
    count = int((end_s - start_s - CLIP_S) / step_s + 1e-6) + 1
    return tuple(start_s + number * step_s for number in range(count))


def read_clips(film: Path, starts: Sequence[float]) -> Iterator[tuple[float, Array]]:
    """Yield where each clip begins, and its frames: FRAMES x 3 x SIDE x SIDE of 0..255.

    The film is decoded once, from its first clip to its last; a clip beyond its end repeats the last frame.
    """
    times = sorted({_tick(start, number) for start in starts for number in range(FRAMES)})
    about = probe_film(film)
    wanted = [one for one in times if one <= about.duration_s] or [0.0]
    found = [(time_s, small_frame(pixels)) for time_s, pixels in capture_frames(film, wanted)]
    if not found:
        return
    moments = np.array([time_s for time_s, _ in found])
    for start in starts:
        asked = np.array([_tick(start, number) for number in range(FRAMES)])
        places = np.clip(np.searchsorted(moments, asked + 1e-6, side="right") - 1, 0, len(found) - 1)
        yield start, np.stack([found[place][1] for place in places])


def _tick(start_s: float, number: int) -> float:
    return round(start_s + number * EVERY_S, 4)


def small_frame(pixels: Array) -> Array:
    """Return a frame as 3 x SIDE x SIDE."""
    shrunk = cv2.resize(pixels, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    return np.ascontiguousarray(shrunk.transpose(2, 0, 1))
