"""Films: what they are, and frames of them, by PyAV."""

from weft.vision.films.frames import capture_frames, frame_times
from weft.vision.films.probing import FILM_SUFFIXES, Film, probe_film

__all__ = ["FILM_SUFFIXES", "Film", "capture_frames", "frame_times", "probe_film"]
