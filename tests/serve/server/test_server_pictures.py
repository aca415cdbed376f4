"""Pictures: decoded, fitted, refused; and the doors that take them."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from testing.serving.pictures import picture
from testing.serving.server import Server
from testing.vision.made_pictures import animated_png

from weft.serve.card import Card, Picture
from weft.serve.server.pictures import pictures
from weft.serve.server.pictures.answers import classes, detections
from weft.serve.server.pictures.pictures import Geometry, decode, opened, prepare, row_of, shrink_for
from weft.serve.server.protocols.tensors import BF16, Array
from weft.serve.server.refusal import RefusalError


def bomb(side: int = 60_000) -> bytes:
    """A PNG of a few hundred bytes that says it is 3.6 billion pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    data = zlib.compress(b"\0" * 100_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_sizes_are_read_from_the_header(kind: str) -> None:
    found = opened(picture(kind), 1000)
    assert (found.width, found.height) == (32, 16)
    assert decode(found).shape == (16, 32, 3)


def test_a_header_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    size = pictures._size

    def counted(data: bytes) -> tuple[int, int]:
        read.append(data)
        return size(data)

    monkeypatch.setattr(pictures, "_size", counted)
    row_of(picture(".jpg"), Picture(height=4, width=4), 1000)
    assert len(read) == 1


def test_a_damaged_animation_is_decoded_as_the_still_picture_that_it_has() -> None:
    """OpenCV's reader of animated PNGs never sees it: it ends the process on some that are damaged."""
    still = picture(".png")
    damaged = animated_png(still).replace(b"fcTL", b"fWTL", 1)
    assert (decode(opened(damaged, 1000)) == decode(opened(still, 1000))).all()
    with pytest.raises(RefusalError, match="whole PNG"):
        decode(opened(damaged[:-6], 1000))


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 415),
        (b"GIF89a", 415),
        (picture(".jpg")[:-40], 400),
        (picture(".jpg")[:30], 400),
        (picture(".png")[:40], 400),
        (b"\x89PNG\r\n\x1a\n", 400),
        (b"\xff\xd8\xff" + b"\0" * 100, 400),
        (bomb(), 413),
    ],
)
def test_what_is_no_whole_picture_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(RefusalError) as caught:
        decode(opened(data, 1_000_000))
    assert caught.value.status == status


def gradient(height: int, width: int) -> Array:
    """Blue grows to the right, green downwards."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 0] = np.linspace(0, 255, width)
    pixels[:, :, 1] = np.linspace(0, 255, height)[:, None]
    return pixels


def test_a_picture_becomes_what_its_card_says() -> None:
    card = Picture(height=4, width=4, resize="stretch", mean=(0.5, 0.25, 0.0), std=(0.5, 0.25, 1.0))
    row, _ = prepare(np.full((8, 8, 3), (255, 0, 51), np.uint8), card)
    assert row.shape == (1, 3, 4, 4)
    assert row.dtype == np.float32
    np.testing.assert_allclose(row[0, :, 0, 0], [(0.2 - 0.5) / 0.5, (0 - 0.25) / 0.25, 1.0], rtol=1e-5)
    last, _ = prepare(np.full((8, 8, 3), (255, 0, 51), np.uint8), Picture(height=4, width=4, layout="NHWC"))
    np.testing.assert_allclose(last[0, 0, 0], [0.2, 0.0, 1.0], rtol=1e-5)
    grey, _ = prepare(
        np.full((8, 8, 3), 255, np.uint8), Picture(height=4, width=4, colours="GREY", scale=1.0)
    )
    assert grey.shape == (1, 1, 4, 4)
    assert grey.max() == 255
    raw, _ = prepare(np.full((8, 8, 3), 200, np.uint8), Picture(height=4, width=4), "UINT8")
    assert raw.dtype == np.uint8
    assert raw.max() == 200


def test_crop_keeps_the_middle_and_pad_keeps_everything() -> None:
    wide = gradient(10, 30)
    cut, geometry = prepare(wide, Picture(height=10, width=10, colours="BGR", scale=1.0))
    np.testing.assert_array_equal(cut[0, 0], wide[:, 10:20, 0])
    assert geometry.back(0, 0) == (10, 0)
    inner, _ = prepare(gradient(20, 20), Picture(height=10, width=10, crop=0.5, colours="BGR", scale=1.0))
    np.testing.assert_array_equal(inner[0, 0], gradient(20, 20)[5:15, 5:15, 0])
    padded, geometry = prepare(wide, Picture(height=30, width=30, resize="pad", colours="BGR", scale=1.0))
    assert (padded[0, :, :10] == 114).all()
    np.testing.assert_array_equal(padded[0, 0, 10:20], wide[:, :, 0])
    assert geometry.back(15, 15) == (15, 5)


@pytest.mark.parametrize("size", [(480, 640), (333, 257), (250, 1000)])
def test_a_picture_cut_before_it_is_scaled_shows_what_it_would_show_after(size: tuple[int, int]) -> None:
    """Within half a pixel of the picture and what is rounded: here two shades."""
    pixels = gradient(*size)
    card = Picture(height=100, width=100, crop=0.875, colours="BGR", scale=1.0)
    row, geometry = prepare(pixels, card)
    wide, high = (round(side * 100 / 0.875 / min(size)) for side in size[::-1])
    left, top = (wide - 100) // 2, (high - 100) // 2
    whole = cv2.resize(pixels, (wide, high), interpolation=cv2.INTER_AREA)
    wanted = whole[top : top + 100, left : left + 100].transpose(2, 0, 1)
    assert np.abs(row[0] - wanted).max() <= 2
    for x, y in ((0, 0), (50, 20), (100, 100)):
        exact = ((x + left) * size[1] / wide, (y + top) * size[0] / high)
        assert np.abs(np.subtract(geometry.back(x, y), exact)).max() <= 1


@pytest.mark.parametrize("size", [(60_001, 1), (1, 60_000), (1, 1), (40_000, 3)])
def test_a_long_strip_is_not_made_wider_as_a_whole(
    size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    resize = cv2.resize

    def counted(pixels: Array, wanted: tuple[int, int], **more: Any) -> Any:
        made.append(wanted[0] * wanted[1])
        return resize(pixels, wanted, **more)

    monkeypatch.setattr(cv2, "resize", counted)
    height, width = size
    shade = np.uint8(200)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[height // 2 - 2 : height // 2 + 3, max(0, width // 2 - 2) : width // 2 + 3] = shade
    row, geometry = prepare(pixels, Picture(height=10, width=10, colours="BGR", scale=1.0))
    assert max(made) <= 1000
    assert row[0, :, 5, 5].tolist() == [shade] * 3
    assert (geometry.width, geometry.height) == (width, height)
    assert np.abs(np.subtract(geometry.back(5, 5), (width / 2, height / 2))).max() <= 1


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "UINT8"])
@pytest.mark.parametrize("colours", ["RGB", "BGR", "GREY"])
def test_both_layouts_hold_the_same_numbers(datatype: str, colours: str) -> None:
    shades = (0.1, 0.2, 0.3)[: 1 if colours == "GREY" else 3]
    card = Picture(height=9, width=7, resize="stretch", colours=colours, mean=shades, std=shades)
    first, _ = prepare(gradient(20, 30), card, datatype)
    last, _ = prepare(gradient(20, 30), replace(card, layout="NHWC"), datatype)
    assert first.shape == (1, len(shades), 9, 7)
    assert first.flags.c_contiguous
    assert last.flags.c_contiguous
    np.testing.assert_array_equal(first, last.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("side", [80, 100, 150, 333, 1000])
def test_a_picture_made_smaller_is_averaged(side: int) -> None:
    """As an average over areas has it: lines one pixel wide become grey, at any scale."""
    pixels = np.zeros((side, side, 3), np.uint8)
    pixels[::2] = 255
    small, _ = prepare(pixels, Picture(height=50, width=50, resize="stretch", scale=1.0))
    exact = cv2.resize(pixels, (50, 50), interpolation=cv2.INTER_AREA).transpose(2, 0, 1)
    assert np.abs(small[0, :, 2:-2].mean() - 127.5) < 2
    assert np.abs(small[0] - exact).mean() < 30  # reading single pixels would be off by 127


def turned(data: bytes, orientation: int) -> bytes:
    """The same JPEG, with a note of how the camera was held."""
    entry = struct.pack("<HHIHH", 0x0112, 3, 1, orientation, 0)
    exif = b"Exif\0\0II*\0" + struct.pack("<IH", 8, 1) + entry + struct.pack("<I", 0)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


@pytest.mark.parametrize("rule", ["crop", "pad", "stretch"])
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_large_jpeg_is_decoded_smaller_and_looks_the_same(rule: str, orientation: int) -> None:
    data = turned(bytes(cv2.imencode(".jpg", gradient(483, 1001))[1]), orientation)
    card = Picture(height=50, width=60, resize=rule, scale=1.0)
    row, geometry = row_of(data, card, 1_000_000)
    whole, exact = prepare(decode(opened(data, 1_000_000)), card)
    assert np.abs(row - whole).max() < 12
    assert (geometry.width, geometry.height) == ((1001, 483) if orientation == 1 else (483, 1001))
    for point in ((0, 0), (30, 25), (60, 50)):
        assert np.abs(np.subtract(geometry.back(*point), exact.back(*point))).max() <= 8


@pytest.mark.parametrize(
    ("size", "shrink"),
    [((640, 480), 2), ((479, 640), 2), ((447, 448), 1), ((1792, 1792), 8), ((4000, 300), 1)],
)
def test_a_jpeg_is_never_decoded_smaller_than_what_is_wanted(size: tuple[int, int], shrink: int) -> None:
    assert shrink_for(*size, Picture(height=224, width=224)) == shrink


CARD = Card(task="classify", labels=("cat", "dog"))


def test_logits_and_probabilities_both_end_as_probabilities() -> None:
    logits = classes({"y": np.array([[0.0, 2.0]], np.float32)}, CARD)
    assert logits[0]["label"] == "dog"
    assert logits[0]["confidence"] == pytest.approx(0.8808, abs=1e-3)
    assert sum(one["confidence"] for one in logits) == pytest.approx(1)
    assert classes({"y": np.array([[0.7, 0.3]], np.float32)}, CARD)[0] == {
        "label": "cat",
        "confidence": pytest.approx(0.7),
    }
    assert classes({"y": np.array([[0.9]], np.float32)}, CARD)[0]["label"] == "dog"
    brief = np.array([[0.6, 0.4]], BF16)  # which add up to 1.002
    assert classes({"y": brief}, CARD)[0]["confidence"] == pytest.approx(0.6, abs=0.01)
    with pytest.raises(RefusalError, match="number a class"):
        classes({"y": np.array([1])}, CARD)


def test_a_box_that_covers_a_better_one_is_left_out() -> None:
    found = np.array([[[0, 0, 10, 10], [1, 0, 10, 10], [1, 0, 10, 10], [20, 20, 30, 30]]], np.float32)
    certain = np.array([[[0.9, 0], [0.8, 0], [0, 0.7], [0.1, 0]]], np.float32)
    geometry = Geometry(2.0, 2.0, 0, 0, 5, 5)
    kept = detections({"boxes": found, "scores": certain}, CARD, geometry)
    assert [(one["label"], one["confidence"]) for one in kept] == [
        ("cat", pytest.approx(0.9)),
        ("dog", pytest.approx(0.7)),
    ]
    assert (kept[0]["xmax"], kept[0]["ymax"]) == (5, 5)


@pytest.mark.parametrize("kind", [".png", ".jpg"])
def test_classify_and_detect(server: Server, kind: str, tmp_path: Path) -> None:
    data = picture(kind)
    best = server.call("POST", "/classify_upload", data, content_type="image/jpeg").json()
    assert best[0]["label"] == "green"
    assert best[0]["confidence"] > 0.9
    found = server.call("POST", "/detect_upload?model=boxes", data).json()
    assert found == [
        {"label": "red", "confidence": pytest.approx(0.9), "xmin": 0, "ymin": 0, "xmax": 16, "ymax": 8},
        {"label": "blue", "confidence": pytest.approx(0.7), "xmin": 16, "ymin": 8, "xmax": 32, "ymax": 16},
    ]
    assert len(server.call("POST", "/detect_upload?confidence=0.8", data).json()) == 1
    (tmp_path / "p").write_bytes(data)
    with server.client() as client:
        assert client.picture("colours", tmp_path / "p", top=1) == best[:1]


def test_a_form(server: Server) -> None:
    head = b'--b\r\nContent-Disposition: form-data; name="f"; filename="p.png"\r\n\r\n'
    body = head + picture() + b"\r\n--b--\r\n"
    form = "multipart/form-data; boundary=b"
    assert server.call("POST", "/classify_upload", body, content_type=form).json()[0]["label"] == "green"
    assert server.call("POST", "/classify_upload", b"--b--\r\n", content_type=form).status == 400
    assert server.call("POST", "/classify_upload", body, content_type="multipart/form-data").status == 400


@pytest.mark.parametrize(
    ("path", "data", "status", "told"),
    [
        ("/classify_upload", picture(".jpg")[:-40], 400, "whole JPEG"),
        ("/classify_upload", bomb(), 413, "1 to 1000000 pixels"),
        ("/classify_upload", b"text", 415, "JPEG or a PNG"),
        ("/classify_upload?model=boxes", picture(), 400, "for the task classify"),
        ("/classify_upload?top=x", picture(), 400, "top must be a number"),
        ("/v2/models/double/picture", picture(), 400, "its card say how"),
        ("/detect_upload?model=nobody", picture(), 404, "model must be one of"),
    ],
)
def test_a_bad_picture_is_a_4xx_and_the_server_goes_on(
    server: Server, path: str, data: bytes, status: int, told: str
) -> None:
    answer = server.call("POST", path, data)
    assert answer.status == status
    assert told in answer.json()["error"]
    good: Any = server.call("POST", "/classify_upload", picture()).json()
    assert good[0]["label"] == "green"


def test_fetching_is_off_unless_switched_on(server: Server) -> None:
    answer = server.call("GET", "/detect_url?url=http://example.com/x.jpg")
    assert answer.status == 403
    assert "--detect-url" in answer.json()["error"]
