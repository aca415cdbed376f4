"""Pictures: every kind is decoded upright, and what is broken, too large or no picture is refused."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from testing.vision.made_pictures import animated_png, encoded, pixels, with_exif

from weft.errors import PictureError
from weft.serve.server.pictures.still import still_png
from weft.vision.pictures import decode, differing_bits, encode_jpeg, encode_png, perceptual_hash, read_header
from weft.vision.pictures.decoding import upright

KINDS = {".jpg": "JPEG", ".png": "PNG", ".webp": "WebP", ".bmp": "BMP", ".gif": "GIF", ".tiff": "TIFF"}


@pytest.mark.parametrize("suffix", KINDS)
def test_every_kind_is_read_and_decoded(suffix: str) -> None:
    data = encoded(suffix, 40, 30)
    header = read_header(data)
    assert (header.kind, header.width, header.height) == (KINDS[suffix], 40, 30)
    found = decode(data)
    assert found.shape == (30, 40, 3)
    assert abs(found.astype(int) - pixels(40, 30).astype(int)).mean() < (20 if suffix == ".gif" else 12)


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("share", [0.1, 0.5, 0.97])
def test_what_is_cut_short_is_refused(suffix: str, share: float) -> None:
    data = encoded(suffix, 300, 200)
    with pytest.raises(PictureError):
        decode(data[: int(len(data) * share)])


def test_a_cut_jpeg_with_a_whole_thumbnail_inside_is_refused() -> None:
    whole = encoded(width=300, height=200)
    thumbnail = encoded(width=16, height=12)
    segment = b"\xff\xe2" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    data = whole[:2] + segment + whole[2:]
    assert read_header(data).width == 300
    with pytest.raises(PictureError, match="cut short"):
        read_header(data[:-100])


@pytest.mark.parametrize(
    "data", [b"", b"a text that is called .png", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"BM"]
)
def test_what_is_no_picture_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(data)
    with pytest.raises(PictureError, match=r"x\.png must"):
        decode(tmp_path / "x.png")


def test_a_picture_bomb_is_refused_by_its_header() -> None:
    rows = zlib.compress(b"\0" * 1000)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    size = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    with pytest.raises(PictureError, match="100000 x 100000"):
        decode(bomb)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied(orientation: int) -> None:
    data = with_exif(encoded(width=40, height=30), orientation, camera="X1", maker="Y")
    header = read_header(data)
    found = decode(data)
    assert found.shape[:2] == (header.height, header.width)
    assert header.exif == {"camera": "X1", "maker": "Y"}
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)  # OpenCV turns it by itself
    assert expected is not None
    assert (found == expected[:, :, ::-1]).all()
    assert (upright(decode(encoded(width=40, height=30)), orientation) == found).all()


def test_reduced_decoding_has_the_longest_side_asked_for() -> None:
    data = with_exif(encoded(width=640, height=480), 6)
    small = decode(data, max_side=100)
    assert small.shape == (100, 75, 3)
    whole = cv2.resize(decode(data), (75, 100), interpolation=cv2.INTER_AREA)
    assert abs(small.astype(int) - whole.astype(int)).mean() < 3
    assert decode(encoded(width=40, height=30), max_side=100).shape == (30, 40, 3)


def test_grey_16_bit_and_transparent_pictures_become_rgb() -> None:
    deep = (pixels(40, 30)[:, :, ::-1].astype(np.uint16)) * 257
    for image in (deep, pixels(40, 30)[:, :, 0], np.dstack([pixels(40, 30), np.full((30, 40), 9, np.uint8)])):
        data = cv2.imencode(".png", image)[1].tobytes()
        found = decode(data)
        assert found.dtype == np.uint8
        assert found.shape == (30, 40, 3)
    assert abs(decode(cv2.imencode(".png", deep)[1].tobytes()).astype(int) - pixels(40, 30)).max() <= 1


def test_an_animation_is_its_first_frame() -> None:
    animation = cv2.Animation()
    animation.frames = [pixels(40, 30, seed) for seed in range(3)]
    animation.durations = np.array([100, 100, 100], np.int32)  # type: ignore[assignment]
    done, data = cv2.imencodeanimation(".gif", animation)
    assert done
    assert decode(bytes(data)).shape == (30, 40, 3)


def test_an_animated_png_is_its_still_picture() -> None:
    still = encoded(".png", 40, 30, seed=1)
    assert still_png(still) == still
    whole = animated_png(still)
    assert still_png(whole) == still
    assert (decode(whole) == decode(still)).all()
    for damaged in (whole.replace(b"fcTL", b"fWTL", 1), whole.replace(b"acTL", b"fcTL")):
        assert (decode(damaged) == decode(still)).all()
    assert still_png(whole[:-6]) is None
    with pytest.raises(PictureError, match="whole"):
        decode(whole[:-6])


def test_alike_pictures_have_alike_hashes() -> None:
    one, other = pixels(200, 150, 1), pixels(200, 150, 2)
    again = decode(encode_jpeg(one, 60), max_side=90)
    assert differing_bits(perceptual_hash(one), perceptual_hash(again)) <= 4
    assert differing_bits(perceptual_hash(one), perceptual_hash(other)) > 10
    assert (decode(encode_png(one)) == one).all()
