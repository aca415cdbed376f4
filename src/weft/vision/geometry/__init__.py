"""Geometry of labels: boxes, polygons, run-length masks, and how they move with a changed picture; all pure."""

from weft.vision.geometry.affine import Affine
from weft.vision.geometry.boxes import box_area, box_iou, clip_box, union_box
from weft.vision.geometry.masks import (
    decode_mask,
    encode_mask,
    mask_area,
    mask_box,
    mask_iou,
    pack_counts,
    unpack_counts,
)
from weft.vision.geometry.moving import move_shape
from weft.vision.geometry.polygons import (
    clip_polygon,
    crosses_itself,
    polygon_area,
    polygon_box,
    polygons_of_mask,
    rasterise,
)
from weft.vision.geometry.tracks import interpolate_track
from weft.vision.geometry.validity import shape_area, shape_problem, within_picture

__all__ = [
    "Affine",
    "box_area",
    "box_iou",
    "clip_box",
    "clip_polygon",
    "crosses_itself",
    "decode_mask",
    "encode_mask",
    "interpolate_track",
    "mask_area",
    "mask_box",
    "mask_iou",
    "move_shape",
    "pack_counts",
    "polygon_area",
    "polygon_box",
    "polygons_of_mask",
    "rasterise",
    "shape_area",
    "shape_problem",
    "union_box",
    "unpack_counts",
    "within_picture",
]
