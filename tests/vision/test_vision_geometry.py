"""Geometry: laws that hold for every shape."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from testing.vision.drawn_shapes import bitmaps, boxes, rings, shapes

from weft.errors import PictureError
from weft.vision.geometry import (
    Affine,
    box_area,
    box_iou,
    clip_box,
    clip_polygon,
    crosses_itself,
    decode_mask,
    encode_mask,
    interpolate_track,
    mask_area,
    move_shape,
    pack_counts,
    polygon_area,
    polygons_of_mask,
    rasterise,
    shape_area,
    shape_problem,
    unpack_counts,
    within_picture,
)
from weft.vision.geometry.polygons import Bitmap
from weft.vision.records import LabelledShape, RunLengths

W, H = 32, 24
maps = st.sampled_from(
    [
        (Affine.flip_left_right(W), W, H),
        (Affine.flip_top_bottom(H), W, H),
        (Affine.quarter_turns(1, W, H), H, W),
        (Affine.quarter_turns(2, W, H), W, H),
        (Affine.quarter_turns(3, W, H), H, W),
        (Affine.scale(2, 2), 2 * W, 2 * H),
        (Affine(), W, H),
    ]
)


@given(boxes(), boxes())
def test_iou_is_symmetric_and_between_zero_and_one(one: tuple[float, ...], two: tuple[float, ...]) -> None:
    assert box_iou(one, two) == pytest.approx(box_iou(two, one))  # type: ignore[arg-type]
    assert 0 <= box_iou(one, two) <= 1 + 1e-9  # type: ignore[arg-type]
    assert box_iou(one, one) == pytest.approx(1)  # type: ignore[arg-type]


@given(shapes(), maps)
def test_a_map_that_keeps_the_whole_picture_keeps_areas_and_can_be_undone(
    shape: LabelledShape, change: tuple[Affine, int, int]
) -> None:
    to, width, height = change
    moved = move_shape(shape, to, width, height)
    assert moved is not None
    assert shape_problem(moved, width, height) is None
    assert shape_area(moved) == pytest.approx(shape_area(shape) * abs(to.determinant), rel=1e-6)
    back = move_shape(moved, to.inverse(), W, H)
    assert back is not None
    assert back.box == pytest.approx(shape.box, abs=1e-6)
    assert back.mask == shape.mask
    for ring, before in zip(back.polygons, shape.polygons, strict=True):
        assert polygon_area(ring) == pytest.approx(polygon_area(before), rel=1e-6)


@given(shapes(), st.integers(0, 20), st.integers(0, 14), st.integers(1, 12), st.integers(1, 10))
def test_what_a_crop_leaves_of_a_shape_lies_in_it_and_is_no_larger(
    shape: LabelledShape, left: int, top: int, width: int, height: int
) -> None:
    moved = move_shape(shape, Affine.shift(-left, -top), width, height)
    if moved is None:
        return
    assert 0 <= moved.box[0] < moved.box[2] <= width
    assert 0 <= moved.box[1] < moved.box[3] <= height
    assert shape_area(moved) <= shape_area(shape) + 1e-6
    assert shape_area(moved) <= max(1, len(moved.polygons)) * width * height + 1e-6


@given(shapes(), st.floats(-180, 180))
def test_a_turn_never_leaves_a_shape_outside(shape: LabelledShape, degrees: float) -> None:
    moved = move_shape(shape, Affine.rotation(degrees, (W / 2, H / 2)), W, H)
    if moved is not None:
        assert clip_box(moved.box, W, H) == pytest.approx(moved.box)


@given(st.floats(-180, 180), st.floats(0.1, 4), st.floats(-50, 50), st.floats(-50, 50))
def test_maps_compose_and_invert(degrees: float, scale: float, x: float, y: float) -> None:
    whole = Affine.rotation(degrees, (5, 7)).then(Affine.scale(scale, scale)).then(Affine.shift(x, y))
    assert whole.then(whole.inverse()).point(3, 4) == pytest.approx((3, 4), abs=1e-6)


@given(bitmaps())
def test_masks_survive_run_lengths_and_packing(bitmap: Bitmap) -> None:
    mask = encode_mask(bitmap)
    assert (decode_mask(mask) == bitmap).all()
    assert mask_area(mask) == int(bitmap.sum())
    assert unpack_counts(pack_counts(mask.counts)) == mask.counts


@given(bitmaps())
def test_polygons_around_a_mask_rasterise_to_it(bitmap: Bitmap) -> None:
    contours, _ = cv2.findContours(bitmap, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    filled = np.zeros_like(bitmap)
    cv2.drawContours(filled, contours, -1, 1, cv2.FILLED)
    found = polygons_of_mask(bitmap)
    assert (rasterise(found, W, H) == filled).all()


@given(rings())
def test_a_bitmap_of_a_polygon_has_nearly_its_area(ring: tuple[tuple[float, float], ...]) -> None:
    around = sum(math.dist(a, b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))
    assert abs(int(rasterise([ring], W, H).sum()) - polygon_area(ring)) <= around + 1


@given(rings(), st.floats(4, 30), st.floats(4, 20))
def test_clipping_parts_an_area_in_two(
    ring: tuple[tuple[float, float], ...], width: float, height: float
) -> None:
    inside = polygon_area(clip_polygon(ring, width, H))
    right = clip_polygon([(x - width, y) for x, y in ring], W - width, H)
    assert inside + polygon_area(right) == pytest.approx(polygon_area(ring), abs=1e-6)
    assert polygon_area(clip_polygon(ring, width, height)) <= width * height + 1e-9


@given(rings())
def test_stars_do_not_cross_themselves(ring: tuple[tuple[float, float], ...]) -> None:
    assert not crosses_itself(ring)


def test_swapped_corners_cross() -> None:
    assert crosses_itself(((0, 0), (5, 5), (5, 0), (0, 5)))
    assert crosses_itself(((0, 0), (8, 0), (4, 0), (4, 4)))  # back over itself
    assert not crosses_itself(((0, 0), (8, 0), (8, 8), (0, 8)))


def test_a_polygon_that_crosses_itself_is_kept_as_the_area_that_it_covers() -> None:
    bow = ((2.0, 2.0), (20.0, 18.0), (20.0, 2.0), (2.0, 22.0))
    shape = LabelledShape(label="bow", box=(2, 2, 20, 20), polygons=(bow,))
    kept, problem = within_picture(shape, W, H)
    assert problem is not None
    assert "cross itself" in problem
    assert kept is not None
    assert shape_problem(kept, W, H) is None
    assert shape_area(kept) == pytest.approx(171, abs=15)


@pytest.mark.parametrize(
    ("box", "kept"),
    [
        ((-5, -5, 10, 10), (0, 0, 10, 10)),
        ((20, 10, 40, 30), (20, 10, 32, 24)),
        ((10, 10, 5, 5), (5, 5, 10, 10)),
        ((40, 40, 50, 50), None),
        ((5, 5, 5, 9), None),
        ((float("nan"), 0, 1, 1), None),
    ],
)
def test_boxes_of_files_are_clipped_or_left_out_with_a_sentence(
    box: tuple[float, float, float, float], kept: tuple[float, ...] | None
) -> None:
    shape, problem = within_picture(LabelledShape(label="a", box=box), W, H)
    assert problem is not None
    assert (shape.box if shape else None) == kept


@pytest.mark.parametrize("label", ["", " x", "a" * 65, "a\nb"])
def test_names_that_cannot_be_shown_are_refused(label: str) -> None:
    assert shape_problem(LabelledShape(label=label, box=(0, 0, 1, 1)), W, H) is not None


def test_counts_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(PictureError, match="add up"):
        decode_mask(RunLengths(4, 4, (3, 3)))
    with pytest.raises(PictureError, match="COCO"):
        unpack_counts("\x00\x01")


def test_a_track_is_a_straight_line_between_drawn_frames() -> None:
    drawn = {
        0.0: LabelledShape(label="car", box=(0, 0, 10, 10), track="t"),
        2.0: LabelledShape(label="car", box=(20, 0, 30, 20), track="t"),
    }
    found = interpolate_track(drawn, [-1.0, 0.0, 1.0, 2.0, 3.0])
    assert sorted(found) == [0.0, 1.0, 2.0]
    assert found[1.0].box == pytest.approx((10, 0, 20, 15))
    assert found[1.0].track == "t"


@given(boxes())
def test_areas_of_boxes_are_those_of_their_rings(box: tuple[float, float, float, float]) -> None:
    left, top, right, bottom = box
    ring = ((left, top), (right, top), (right, bottom), (left, bottom))
    assert polygon_area(ring) == pytest.approx(box_area(box), abs=1e-9)
