"""Films: what they are, frames at times, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from testing.vision.made_films import film_bytes

from weft.errors import PictureError
from weft.vision.films import Film, capture_frames, frame_times, probe_film
from weft.vision.library import FileFilter, Library

FILM = Film(suffix="mp4", codec="h264", width=64, height=48, duration_s=2.0, frames_per_s=5, frames=10)


def test_times_of_frames() -> None:
    assert frame_times(FILM, every_s=0.5) == (0.0, 0.5, 1.0, 1.5)
    assert frame_times(FILM, times_s=[1.5, 0.2, 0.2]) == (0.2, 1.5)
    for wrong in (
        {"times_s": [3.0]},
        {"times_s": [-1.0]},
        {"every_s": 0.0},
        {},
        {"times_s": [1], "every_s": 1},
    ):
        with pytest.raises(PictureError):
            frame_times(FILM, **wrong)
    with pytest.raises(PictureError, match="at most 10000"):
        frame_times(FILM, every_s=0.0001)


def test_frames_are_those_that_are_shown_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "film.mp4"
    path.write_bytes(film_bytes(seconds=12, rate=5))
    film = probe_film(path)
    assert (film.codec, film.width, film.height, film.frames) == ("h264", 64, 48, 60)
    assert film.duration_s == pytest.approx(12)
    asked = [0.0, 0.35, 1.0, 9.9, 11.99]  # the fourth is reached by seeking
    found = list(capture_frames(path, asked))
    assert [round(time, 1) for time, _ in found] == [0.0, 0.2, 1.0, 9.8, 11.8]
    for time_s, pixels in found:
        bright = np.flatnonzero(pixels[12, :, 0] > 150)
        assert abs(int(bright.min()) - (round(time_s * 5) * 4) % 56) <= 2


@pytest.mark.parametrize("data", [b"", b"not a film at all" * 100])
def test_what_is_no_film_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.mp4").write_bytes(data)
    with pytest.raises(PictureError, match=r"x\.mp4 must"):
        probe_film(tmp_path / "x.mp4")


def test_an_unknown_codec_is_refused(tmp_path: Path) -> None:
    data = film_bytes(seconds=1)
    (tmp_path / "x.mp4").write_bytes(data.replace(b"avc1", b"xyz9"))
    with pytest.raises(PictureError, match=r"H\.264"):
        probe_film(tmp_path / "x.mp4")


def test_frames_are_children_of_their_film_and_captured_once(library: Library, tmp_path: Path) -> None:
    (tmp_path / "drive.mp4").write_bytes(film_bytes())
    library.create("cars")
    assert library.import_from("cars", tmp_path).added == 1
    (film,) = library.files("cars", FileFilter(kind="film")).files
    assert len(library.capture(film.id, every_s=0.5)) == 4
    assert len(library.capture(film.id, every_s=0.5)) == 0
    frames = library.files("cars", FileFilter(parent=film.id)).files
    assert {one.kind for one in frames} == {"frame"}
    assert library.dataset("cars").counts.films == 1
    clone = library.clone("cars", "copy")
    copied = library.files("copy", FileFilter(kind="frame")).files
    assert {one.parent for one in copied} == {library.files("copy", FileFilter(kind="film")).files[0].id}
    assert clone.counts.pictures == 4
    library.remove_file(film.id)
    assert library.dataset("cars").counts.pictures == 0
    with pytest.raises(PictureError, match="of a film"):
        library.capture(copied[0].id, every_s=1)
