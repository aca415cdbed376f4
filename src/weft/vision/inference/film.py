"""Inference on a film: every n-th frame is looked at, and a captioned film comes out, in H.264 that browsers play."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from weft.errors import PictureError
from weft.vision.actions.predictor import FoundAction
from weft.vision.films.frames import upright_pixels
from weft.vision.inference.drawing import draw_prediction
from weft.vision.inference.predictor import PicturePredictor, Prediction
from weft.vision.inference.tracking import ObjectTracker


@dataclass(frozen=True)
class FrameFound:
    """The answer for one frame that was looked at."""

    time_s: float
    prediction: Prediction


def caption_film(
    predictor: PicturePredictor,
    source: Path,
    target: Path,
    *,
    every: int = 1,
    confidence: float | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[FrameFound]:
    """Write a film with its predictions drawn in, and return them; frames in between show those of the last.

    Objects carry tracks: the same one has the same track in every frame.
    """
    found: list[FrameFound] = []
    tracker = ObjectTracker()

    def look(time_s: float, pixels: Any) -> Prediction:
        seen = predictor.predict([pixels], confidence=confidence)[0]
        seen = replace(seen, shapes=tracker.follow(seen.shapes))
        found.append(FrameFound(time_s, seen))
        return seen

    write_captions(source, target, look, every=every, progress=progress)
    return found


def caption_actions(
    found: Sequence[FoundAction],
    source: Path,
    target: Path,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write a film with the names of its actions drawn in, from when to when they happen."""

    def look(time_s: float, pixels: Any) -> Prediction:
        now = [(one.label, one.confidence) for one in found if one.start_s <= time_s < one.end_s]
        return Prediction(scores=tuple(now))

    write_captions(source, target, look, progress=progress)


def write_captions(
    source: Path,
    target: Path,
    look: Callable[[float, Any], Prediction],
    *,
    every: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write a film with what `look` makes of its frames drawn in; every n-th one is looked at."""
    import av

    try:
        with av.open(str(source)) as given, av.open(str(target), "w", format="mp4") as made:
            if not given.streams.video:
                raise PictureError(f"{source} must be a film with pictures, got one without")
            stream = given.streams.video[0]
            rate = Fraction(stream.average_rate or 25)
            out: Any = made.add_stream("libx264", rate=rate)
            out.pix_fmt, out.time_base = "yuv420p", 1 / rate
            last = Prediction()
            for number, frame in enumerate(given.decode(stream)):
                pixels = upright_pixels(frame)
                if number == 0:  # H.264 in the colours that browsers play needs even sides
                    out.width, out.height = pixels.shape[1] // 2 * 2, pixels.shape[0] // 2 * 2
                if number % every == 0:
                    last = look(float(frame.time or 0.0), pixels)
                shown = draw_prediction(pixels, last)[: out.height, : out.width]
                captioned = av.VideoFrame.from_ndarray(shown, format="rgb24")
                captioned.pts = number
                made.mux(out.encode(captioned))
                progress(number + 1, stream.frames)
            made.mux(out.encode())
    except (av.FFmpegError, OSError) as error:
        target.unlink(missing_ok=True)
        raise PictureError(f"{source} must be a film that can be decoded: {error}") from error
