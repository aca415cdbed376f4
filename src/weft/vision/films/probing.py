"""Probing of films: size, duration and codec; a film that cannot be decoded is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import PictureError

FILM_SUFFIXES = frozenset(
    [".mp4", ".m4v", ".mov", ".webm", ".mkv", ".avi", ".ogv", ".ogg", ".mpg", ".mpeg", ".ts", ".wmv"]
)
PLAYED_BY_BROWSERS = frozenset({"h264", "vp8", "vp9", "av1", "theora"})
CONTENT_TYPES = {
    "mp4": "video/mp4",
    "m4v": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
    "ogv": "video/ogg",
    "ogg": "video/ogg",
    "mkv": "video/x-matroska",
    "avi": "video/x-msvideo",
}
MOST_SIDE = 16_384  # pixels of a frame's side


@dataclass(frozen=True, kw_only=True)
class Film:
    """A film as its container describes it."""

    suffix: str  # of its file, without the point
    codec: str
    width: int
    height: int
    duration_s: float
    frames_per_s: float
    frames: int  # as far as the container says, or as the duration lets expect


def probe_film(path: Path, name: str = "") -> Film:
    """Return what a film is; one that is empty, no film, or of a codec that cannot be decoded is refused."""
    name = name or path.name
    if not path.is_file() or path.stat().st_size == 0:
        raise PictureError(f"{name} must be a film, got an empty file; export it again")
    with opened(path, name) as (container, stream):
        frame = next(frames_of(container, stream, name), None)
        if frame is None:
            raise PictureError(f"{name} must have a frame that can be decoded, got none; export it as H.264")
        if not 0 < max(frame.width, frame.height) <= MOST_SIDE:
            raise PictureError(
                f"{name} must have frames of up to {MOST_SIDE} pixels a side, got {frame.width} x {frame.height}"
            )
        turned = quarter_turns(frame) % 2
        rate = float(stream.average_rate or stream.base_rate or 0)
        duration = _duration_s(container, stream, rate)
        return Film(
            suffix=Path(name).suffix.lower().removeprefix(".") or "mp4",
            codec=stream.codec_context.name,
            width=frame.height if turned else frame.width,
            height=frame.width if turned else frame.height,
            duration_s=duration,
            frames_per_s=rate,
            frames=int(stream.frames or round(duration * rate)),
        )


def _duration_s(container: Any, stream: Any, rate: float) -> float:
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    if container.duration:
        return float(container.duration) / 1e6
    return stream.frames / rate if stream.frames and rate else 0.0


@contextmanager
def opened(path: Path, name: str) -> Iterator[tuple[Any, Any]]:
    """Open a film within a `with` block: its container and its first stream of pictures."""
    import av

    av.logging.set_level(None)  # what is wrong with a film is raised, not printed
    try:
        container = av.open(str(path), metadata_errors="replace")
    except (av.FFmpegError, OSError, ValueError) as error:
        raise PictureError(
            f"{name} must be a film that can be read: {_reason(error)}; export it as H.264"
        ) from None
    try:
        streams = container.streams.video
        if not streams or streams[0].codec_context is None:
            raise PictureError(
                f"{name} must have pictures in a known codec, got none; export it as H.264 in .mp4"
            )
        streams[0].thread_type = "AUTO"
        yield container, streams[0]
    finally:
        container.close()


def quarter_turns(frame: Any) -> int:
    """Return by how many quarters a frame is to be turned clockwise to be upright."""
    return round(-float(getattr(frame, "rotation", 0) or 0) / 90) % 4  # PyAV tells them anticlockwise


def frames_of(container: Any, stream: Any, name: str) -> Any:
    """Yield the frames of a stream from where it stands; a damaged one ends it, and an unknown codec is refused."""
    import av

    count = 0
    try:
        for frame in container.decode(stream):
            count += 1
            yield frame
    except (av.FFmpegError, ValueError) as error:
        if not count:
            raise PictureError(
                f"{name} must have frames that can be decoded, got {stream.codec_context.name}: {_reason(error)}; "
                "export it as H.264"
            ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
