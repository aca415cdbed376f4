"""Label Studio: tasks in JSON or JSON-MIN, with shapes in percent of the picture's sides, and choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.errors import PictureError
from weft.vision.formats.plain.naming import UNREADABLE, PictureLabels
from weft.vision.formats.plain.outlines import Ring, corners, ellipse, outlined, turned
from weft.vision.records import LabelledShape

_KINDS = ("rectanglelabels", "polygonlabels", "ellipselabels")  # of which the value has the labels
_UNREAD = {"brushlabels": "brush", "keypointlabels": "key points"}


def picture_labels(document: Any) -> Sequence[PictureLabels] | None:
    """Return what an export of Label Studio says; None for another file."""
    tasks = [one for one in document if isinstance(one, Mapping)] if isinstance(document, list) else []
    if not tasks or len(tasks) < len(document):
        return None
    if all(isinstance(one.get("data"), Mapping) for one in tasks):
        return [_of_task(one) for one in tasks if _address(one["data"])] or None
    if all(_address(one) and ("annotation_id" in one or "annotator" in one) for one in tasks):
        return [_of_row(one) for one in tasks]
    return None


def _address(data: Mapping[str, Any]) -> str:
    """Return where a task has its picture: `image`, as templates call it, or what else looks like a picture."""
    texts = {key: value for key, value in data.items() if isinstance(value, str)}
    ends = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
    pictures = [value for value in texts.values() if value.lower().split("?")[0].endswith(ends)]
    return texts.get("image") or texts.get("img") or next(iter(pictures), "")


def _of_task(task: Mapping[str, Any]) -> PictureLabels:
    """Return what the annotation of a task says that was made last and not cancelled."""
    annotations = task.get("annotations", task.get("completions"))
    made = [
        one
        for one in (annotations if isinstance(annotations, list) else ())
        if isinstance(one, Mapping) and not one.get("was_cancelled")
    ]
    results = made[-1].get("result") if made else ()
    values, categories = [], []
    for one in results if isinstance(results, list) else ():
        if not isinstance(one, Mapping) or not isinstance(one.get("value"), Mapping):
            continue
        value = one["value"]
        if isinstance(value.get("choices"), list) and value["choices"]:
            categories.append(str(value["choices"][0]))
        elif one.get("type") != "rectangle" or "rectanglelabels" in value:
            values.append(
                {**value, **{key: one[key] for key in ("original_width", "original_height") if key in one}}
            )
    return _labels(_address(task["data"]), values, categories)


def _of_row(row: Mapping[str, Any]) -> PictureLabels:
    """Return what a row of JSON-MIN says, whose columns are called as the tags of its project are."""
    known = {"image", "id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time"}
    values: list[Mapping[str, Any]] = []
    categories = []
    for key, value in row.items():
        if isinstance(value, list):
            values += [one for one in value if isinstance(one, Mapping)]
        elif isinstance(value, str) and key not in known and value != _address(row):
            categories.append(value)
    return _labels(_address(row), values, categories)


def _labels(address: str, values: Sequence[Mapping[str, Any]], categories: Sequence[str]) -> PictureLabels:
    shapes: list[LabelledShape] = []
    problems = []
    sizes = [(one.get("original_width"), one.get("original_height")) for one in values]
    size = next(((w, h) for w, h in sizes if isinstance(w, int) and isinstance(h, int)), None)
    for value in values:
        try:
            shapes.extend(_shapes(value, size))
        except UNREADABLE as error:
            problems.append(f"a shape was left out: {error}")
    category = categories[0] if categories else None
    return PictureLabels(
        name=address,
        shapes=tuple(shapes),
        category=category,
        size=size,
        relative=size is None and bool(shapes),
        problems=tuple(problems),
    )


def _shapes(value: Mapping[str, Any], size: tuple[int, int] | None) -> Iterator[LabelledShape]:
    kind = next((one for one in _KINDS if one in value), None)
    if kind is None:
        unread = next((words for key, words in _UNREAD.items() if key in value), "another kind")
        raise PictureError(f"shapes must be rectangles, polygons or ellipses, got {unread}")
    width, height = size or (1, 1)
    scale = (width / 100, height / 100)
    ring = tuple((x * scale[0], y * scale[1]) for x, y in _points(kind, value))
    # An angle is one of the picture's pixels, not of its percents.
    degrees = float(value.get("rotation") or 0)
    if degrees and size is None:
        raise PictureError("a turned shape must have the size of its picture, got none")
    if len(ring) < 3:
        raise PictureError(f"a polygon must have 3 points, got {len(ring)}")
    about = _middle(ring) if kind == "ellipselabels" else ring[0]
    whole = outlined(str((value[kind] or ["object"])[0]), turned(ring, about, degrees))
    plain = kind == "rectanglelabels" and not degrees
    yield LabelledShape(label=whole.label, box=whole.box) if plain else whole


def _points(kind: str, value: Mapping[str, Any]) -> Ring:
    if kind == "polygonlabels":
        return tuple((float(x), float(y)) for x, y in value["points"])
    x, y = float(value["x"]), float(value["y"])
    if kind == "ellipselabels":
        return ellipse(x, y, float(value["radiusX"]), float(value["radiusY"]))
    return corners(x, y, x + float(value["width"]), y + float(value["height"]))


def _middle(ring: Ring) -> tuple[float, float]:
    return sum(x for x, _ in ring) / len(ring), sum(y for _, y in ring) / len(ring)
