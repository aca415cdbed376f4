"""Augmentation: what is drawn on a picture moves with what is seen in it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from testing.vision.made_pictures import encoded

from weft.errors import PictureError
from weft.vision.assist import grabcut, wand
from weft.vision.augment import KINDS, AugmentStep, apply_change, plan_change
from weft.vision.geometry import encode_mask, polygon_box, rasterise
from weft.vision.library import Library
from weft.vision.records import LabelledPicture, LabelledShape

W, H = 120, 90


def _picture(
    sha256: str = "a",
) -> tuple[LabelledPicture, np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]]:
    """Return a dark picture with a bright square, and its three shapes."""
    pixels = np.full((H, W, 3), 30, np.uint8)
    pixels[35:55, 50:80] = (250, 60, 60)
    box = (50.0, 35.0, 80.0, 55.0)
    ring = ((50.0, 35.0), (80.0, 35.0), (80.0, 55.0), (50.0, 55.0))
    mask = encode_mask(rasterise([ring], W, H))
    shapes = (
        LabelledShape(label="box", box=box),
        LabelledShape(label="ring", box=box, polygons=(ring,)),
        LabelledShape(label="mask", box=box, mask=mask),
    )
    found = LabelledPicture(
        id="1", name="a.png", path=Path("a.png"), width=W, height=H, sha256=sha256, shapes=shapes
    )
    return found, pixels


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", [0.0, 0.4, 1.0])
def test_shapes_stay_on_what_they_are_about(kind: str, level: float) -> None:
    picture, pixels = _picture()
    change = plan_change(AugmentStep(kind, level), picture, seed=3)
    made = apply_change(pixels, change)
    assert made.shape == (change.height, change.width, 3)
    bright = made[:, :, 0].astype(int) - made[:, :, 2] > 60
    if kind == "colour":
        bright = made.max(2) > 110
    moved = {shape.label: shape for shape in change.moved(picture.shapes)}
    if kind == "noise":  # single pixels may be brighter than the square
        assert tuple(moved.values()) == picture.shapes
        return
    if not bright.any():
        return
    rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
    seen = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
    for label in ("ring", "mask"):
        if label in moved:
            assert moved[label].box == pytest.approx(seen, abs=4 if kind != "blur" else 8)


def test_plans_depend_on_the_seed_and_the_picture() -> None:
    picture, _ = _picture("a")
    other, _ = _picture("b")
    step = AugmentStep("rotate", 0.5)
    assert plan_change(step, picture, 1) == plan_change(step, picture, 1)
    assert plan_change(step, picture, 1) != plan_change(step, picture, 2)
    assert plan_change(step, picture, 1) != plan_change(step, other, 1)


@pytest.mark.parametrize(("kind", "level"), [("melt", 0.5), ("blur", 1.5), ("blur", float("nan"))])
def test_wrong_steps_are_refused(kind: str, level: float) -> None:
    with pytest.raises(PictureError):
        AugmentStep(kind, level)


def test_an_augmented_data_set_keeps_splits_and_leaves_nothing_half_done(library: Library) -> None:
    library.create("plain")
    one = library.add("plain", encoded(), "a.jpg", category="x")
    made = library.augment("plain", "more", [AugmentStep("blur"), AugmentStep("crop", 0.3)])
    files = library.files("more").files
    assert made.counts.pictures == 3
    assert {file.split for file in files} == {one.split}
    assert {file.category for file in files} == {"x"}
    path, _ = library.picture_path(one.id)
    path.write_bytes(b"broken")
    with pytest.raises(PictureError):
        library.augment("plain", "half", [AugmentStep("blur")])
    assert sorted(view.name for view in library.datasets()) == ["more", "plain"]


def test_tools_find_the_outline_of_a_square() -> None:
    _, pixels = _picture()
    for rings in (wand(pixels, (60, 40), 20), grabcut(pixels, (42, 28, 90, 62))):
        assert polygon_box(rings) == pytest.approx((50, 35, 80, 55), abs=3)
    with pytest.raises(PictureError, match="lie in the picture"):
        wand(pixels, (500, 1))
    with pytest.raises(PictureError, match="leave some"):
        grabcut(pixels, (0, 0, W, H))
    with pytest.raises(PictureError, match="few pixels"):
        grabcut(pixels, (5, 5, 6, 6))
