"""Augmented batches: maps of pictures, boxes and masks agree; both ways of reading pixels agree."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.serve.card import Picture
from weft.serve.server.pictures.pictures import prepare
from weft.vision.config import AugmentConfig, VisionConfig
from weft.vision.records import LabelledPicture, LabelledShape
from weft.vision.training.feeding.affines import (
    Fit,
    colour_maps,
    inverse,
    moved_boxes,
    moved_points,
    plain_maps,
    random_maps,
)
from weft.vision.training.feeding.batches import PictureSet
from weft.vision.training.feeding.decoding import decode_picture
from weft.vision.training.feeding.targets import box_targets, objects_of
from weft.vision.training.feeding.warping import (
    colour_batch,
    cut_picture,
    erase_batch,
    warp_batch,
    warp_picture,
)
from weft.vision.training.mixing import mixed, soft_targets

ALL = AugmentConfig(flip=True, vertical_flip=True, quarter_turns=True, rotate=20, zoom=0.3, translate=0.1)


@given(seed=st.integers(0, 2**32), width=st.integers(20, 90), height=st.integers(20, 90))
def test_a_box_moves_with_its_pixels(seed: int, width: int, height: int) -> None:
    generator = np.random.default_rng(seed)
    x0, y0 = generator.integers(2, [width - 10, height - 10])
    box = np.array([[x0, y0, x0 + 8, y0 + 8]], float)
    picture = np.zeros((height, width, 3), np.uint8)
    picture[y0 : y0 + 8, x0 : x0 + 8] = 255
    augment = AugmentConfig(flip=True, vertical_flip=True, quarter_turns=True, zoom=0.3, translate=0.05)
    maps = random_maps(generator, np.array([[width, height]], float), (64, 64), "pad", augment)
    moved, seen = moved_boxes(box, maps[0], (64, 64))
    # What lies outside is grey, so only the bright square is looked for.
    bright = warp_picture(picture, maps[0], (64, 64), pad=True)[:, :, 0] > 160
    if not seen[0]:
        return
    ys, xs = np.nonzero(bright)
    assert abs(np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) - moved[0]).max() <= 1.5


@given(seed=st.integers(0, 2**32), width=st.integers(40, 120), height=st.integers(40, 120))
def test_a_straight_cut_is_the_map_up_to_half_a_pixel(seed: int, width: int, height: int) -> None:
    generator = np.random.default_rng(seed)
    ys, xs = np.indices((height, width))
    picture = np.stack([xs, ys, (xs + ys) // 2], 2).astype(np.uint8)  # a pixel further is one step brighter
    augment = AugmentConfig(flip=True, vertical_flip=True, crop=0.6, aspect=0.3)
    matrix = random_maps(generator, np.array([[width, height]], float), (32, 48), "crop", augment)[0]
    cut = np.full((32, 48, 3), 77, np.uint8)
    assert cut_picture(picture, matrix, cut)
    mapped = warp_picture(picture, matrix, (32, 48), pad=False)
    assert abs(cut.astype(int) - mapped.astype(int)).max() <= 2


def test_what_is_no_straight_cut_is_left_to_the_map() -> None:
    target = np.full((8, 8, 3), 77, np.uint8)
    picture = np.zeros((20, 20, 3), np.uint8)
    turned, outside = np.array([[1.0, 0.1, 2], [-0.1, 1, 2]]), np.array([[1.0, 0, -3], [0, 1, 2]])
    assert not cut_picture(picture, turned, target)
    assert not cut_picture(picture, outside, target)
    assert (target == 77).all()


@given(seed=st.integers(0, 2**32))
def test_maps_and_their_inverses(seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = random_maps(generator, np.array([[50.0, 40.0]]), (32, 48), "crop", ALL)[0]
    points = generator.uniform(0, 32, (5, 2))
    assert moved_points(moved_points(points, matrix), inverse(matrix)) == pytest.approx(points, abs=1e-6)


@pytest.mark.parametrize("pad", [True, False])
def test_torch_and_opencv_read_the_same_pixels(pad: bool) -> None:
    generator = np.random.default_rng(3)
    smooth = cv2.resize(
        generator.integers(0, 256, (6, 8, 3), dtype=np.uint8), (80, 60), interpolation=cv2.INTER_CUBIC
    )
    maps = random_maps(generator, np.array([[80.0, 60.0]]), (48, 48), "pad" if pad else "crop", ALL)
    one = warp_picture(smooth, maps[0], (48, 48), pad=pad).astype(float)
    stored = torch.from_numpy(smooth).permute(2, 0, 1)[None]
    other = warp_batch(stored, torch.from_numpy(maps), (48, 48), pad=pad)[0].permute(1, 2, 0).numpy()
    assert np.abs(one - other).mean() < 1.0


@pytest.mark.parametrize(("resize", "crop"), [("crop", 0.95), ("pad", 1.0)])
def test_plain_maps_are_what_a_server_does(resize: str, crop: float) -> None:
    generator = np.random.default_rng(5)
    smooth = cv2.resize(
        generator.integers(0, 256, (5, 7, 3), dtype=np.uint8), (120, 90), interpolation=cv2.INTER_CUBIC
    )
    fit: Fit = "crop" if resize == "crop" else "pad"
    maps = plain_maps(np.array([[120.0, 90.0]]), (64, 64), fit, crop)
    ours = warp_picture(smooth, maps[0], (64, 64), pad=fit == "pad")
    rules = Picture(height=64, width=64, resize=resize, crop=crop, scale=1.0, colours="BGR")
    theirs, _ = prepare(smooth, rules, "UINT8")
    assert (
        np.abs(ours.astype(float) - theirs[0].transpose(1, 2, 0)).mean() < 6
    )  # the server cuts at whole pixels


def test_alternating_flips_show_both_sides() -> None:
    pixels = np.zeros((40, 8, 8, 3), np.uint8)
    pixels[:, :, :4] = 200
    config = VisionConfig(
        task="classification", size=16, augment=AugmentConfig(flip=True, alternate_flip=True)
    )
    pictures = PictureSet(np.full((40, 2), 8), pixels=pixels, classes=np.zeros(40, int))
    shown = [
        pictures.training_batch(
            np.arange(40), config, (8, 8), np.random.default_rng(epoch), torch.device("cpu"), epoch
        ).pixels[:, 0, 0, 0]
        for epoch in (0, 1)
    ]
    first, second = (one > 100 for one in shown)
    assert bool((first != second).all())
    assert 5 < int(first.sum()) < 35


def test_colours_squares_and_mixtures() -> None:
    generator = np.random.default_rng(0)
    grey = torch.full((4, 3, 8, 8), 128.0)
    jitter = AugmentConfig(brightness=0.5, contrast=0.5, saturation=0.5)
    maps = colour_maps(generator, 4, jitter)
    assert colour_maps(generator, 4, AugmentConfig()) is None
    changed = colour_batch(grey, maps)
    assert bool((changed >= 0).all() and (changed <= 255).all())
    assert float((changed[:, 0] - changed[:, 1]).abs().max()) < 1e-3  # grey stays grey
    erased = erase_batch(torch.zeros(1, 3, 8, 8), np.array([[4, 4]]), 4)
    assert int((erased[0, 0] > 0).sum()) == 16
    targets = soft_targets(torch.tensor([0, 1, 2, 1]), 3, 0.1)
    assert targets.sum(-1) == pytest.approx(torch.ones(4).numpy())
    for kind in (AugmentConfig(mixup=0.4), AugmentConfig(cutmix=1.0)):
        _, soft = mixed(generator, torch.rand(4, 3, 8, 8), targets, kind)
        assert soft.sum(-1).numpy() == pytest.approx(np.ones(4), abs=1e-5)


def test_masks_follow_polygons() -> None:
    triangle = LabelledShape(label="a", box=(8, 8, 56, 56), polygons=(((8, 8), (56, 8), (8, 56)),))
    picture = LabelledPicture(id="1", name="1", path=Path("1"), width=64, height=64, shapes=(triangle,))
    objects = objects_of(picture, ("a",))
    mirrored = np.array([[[-1.0, 0, 64], [0, 1, 0]]])
    found = box_targets([objects], mirrored, (64, 64), masks=True)
    assert found.boxes[0, 0].tolist() == [8, 8, 56, 56]
    assert found.masks is not None
    assert found.masks[0, 0, 3, 12] == 1  # the corner that was left above is now right above
    assert found.masks[0, 0, 12, 3] == 0


def test_jpegs_come_reduced_but_not_too_small(tmp_path: Path) -> None:
    file = tmp_path / "large.jpg"
    pixels = np.zeros((400, 600, 3), np.uint8)
    pixels[:, 300:, 0] = 255  # blue, in OpenCV's order
    cv2.imwrite(str(file), pixels)
    found = decode_picture(file, (90, 120))
    assert found.shape[0] in range(90, 401)
    assert found.shape[0] < 400
    assert found[5, -5, 2] > 200  # RGB
