"""The health of a data set: balance, sizes, what is not labelled, labels that look wrong, and duplicates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import sqlalchemy as sa

from weft.errors import PictureError
from weft.vision.geometry.validity import shape_area, shape_problem
from weft.vision.library.blobs import BlobFolder
from weft.vision.library.datasets import class_names
from weft.vision.library.rows import decode_shapes
from weft.vision.library.store import LibraryStore
from weft.vision.library.tables import file, opinion
from weft.vision.pictures.decoding import decode
from weft.vision.pictures.likeness import differing_bits, perceptual_hash
from weft.vision.records import LabelledShape
from weft.vision.views import ClassHealth, DatasetCounts, HealthIssue, SizeBin, VisionHealth

LEAST_PICTURES = 5  # of a class, to train
TINY_SHARE = 1e-4  # of a picture's area, below which a shape is hardly seen
TINY_PX = 4.0  # of a side
IMBALANCE = 10  # times that the most frequent class has more pictures than the least
NEAR_BITS = 3  # of 64 that near duplicates may differ in
DOUBT = 0.5  # from which on a label is suspicious
MOST_FILES = 100  # that an issue names
Level = Literal["info", "warning", "problem"]


@dataclass(frozen=True, kw_only=True)
class HealthFile:
    """One picture as its health is judged."""

    id: str
    sha256: str
    width: int
    height: int
    split: str
    state: str
    review: str
    category: str | None
    shapes: tuple[LabelledShape, ...]
    likeness: int | None = None
    doubt: float = 0.0


def judge(
    files: Sequence[HealthFile], labels: Sequence[str], categories: Sequence[str], films: int = 0
) -> VisionHealth:
    """Return the health of pictures. Pure."""
    states = Counter(one.state for one in files)
    counts = DatasetCounts(
        pictures=len(files),
        films=films,
        labelled=states["labelled"],
        unlabelled=states["unlabelled"],
        auto=states["auto"],
        review=sum(one.review == "review" for one in files),
    )
    by_label = _classes(files, labels, lambda one: {shape.label for shape in one.shapes})
    by_category = _classes(files, categories, lambda one: {one.category} if one.category else set())
    sizes = Counter((one.width, one.height) for one in files).most_common(50)
    issues = [
        *_unlabelled(files),
        *_few("label", by_label),
        *_few("category", by_category),
        *_imbalance("labels", by_label),
        *_imbalance("categories", by_category),
        *_wrong_shapes(files),
        *_duplicates(files),
        *_near_duplicates(files),
        *_suspicious(files),
    ]
    return VisionHealth(
        counts=counts,
        labels=by_label,
        categories=by_category,
        splits=dict(Counter(one.split for one in files)),
        sizes=tuple(SizeBin(width=width, height=height, count=count) for (width, height), count in sizes),
        issues=tuple(issues),
    )


def _classes(
    files: Sequence[HealthFile], names: Sequence[str], of: Callable[[HealthFile], Iterable[str]]
) -> tuple[ClassHealth, ...]:
    pictures: Counter[str] = Counter()
    splits: dict[str, Counter[str]] = defaultdict(Counter)
    areas: dict[str, list[float]] = defaultdict(list)
    for one in files:
        for name in of(one):
            pictures[name] += 1
            splits[name][one.split] += 1
        for shape in one.shapes:
            areas[shape.label].append(shape_area(shape) / (one.width * one.height))
    return tuple(
        ClassHealth(
            name=name,
            pictures=pictures[name],
            shapes=len(areas[name]),
            splits=dict(splits[name]),
            median_area=median(areas[name]) if areas[name] else 0.0,
        )
        for name in names
    )


def _issue(kind: str, level: Level, text: str, files: Sequence[str]) -> list[HealthIssue]:
    if not files:
        return []
    return [HealthIssue(kind=kind, level=level, text=text, count=len(files), files=tuple(files[:MOST_FILES]))]


def _unlabelled(files: Sequence[HealthFile]) -> list[HealthIssue]:
    found = [one.id for one in files if one.state == "unlabelled"]
    return _issue("unlabelled", "info", f"{len(found)} of {len(files)} pictures have no label", found)


def _few(word: str, classes: Sequence[ClassHealth]) -> list[HealthIssue]:
    few = [one for one in classes if one.pictures < LEAST_PICTURES]
    if not few:
        return []
    named = ", ".join(f"{one.name} ({one.pictures})" for one in few[:10])
    text = f"each {word} must be on {LEAST_PICTURES} pictures to train, got fewer for {named}"
    return [HealthIssue(kind="few", level="problem", text=text, count=len(few), files=())]


def _imbalance(word: str, classes: Sequence[ClassHealth]) -> list[HealthIssue]:
    used = [one for one in classes if one.pictures]
    if len(used) < 2:
        return []
    least, most = min(used, key=lambda one: one.pictures), max(used, key=lambda one: one.pictures)
    if most.pictures < IMBALANCE * least.pictures:
        return []
    text = f"{word} are far from even: {most.name} is on {most.pictures} pictures, {least.name} on {least.pictures}"
    return [HealthIssue(kind="imbalance", level="warning", text=text, count=1, files=())]


def _wrong_shapes(files: Sequence[HealthFile]) -> list[HealthIssue]:
    wrong: dict[str, list[str]] = {"crossing": [], "outside": []}
    tiny = []
    for one in files:
        for shape in one.shapes:
            problem = shape_problem(shape, one.width, one.height)
            if problem is not None:
                wrong["crossing" if "cross itself" in problem else "outside"].append(one.id)
            width, height = shape.box[2] - shape.box[0], shape.box[3] - shape.box[1]
            if min(width, height) < TINY_PX or shape_area(shape) < TINY_SHARE * one.width * one.height:
                tiny.append(one.id)
    return [
        *_issue("outside", "problem", "shapes lie outside their picture", wrong["outside"]),
        *_issue("crossing", "problem", "polygons cross themselves", wrong["crossing"]),
        *_issue(
            "tiny", "warning", "shapes are so small that they are hardly seen", list(dict.fromkeys(tiny))
        ),
    ]


def _duplicates(files: Sequence[HealthFile]) -> list[HealthIssue]:
    groups: dict[str, list[str]] = defaultdict(list)
    for one in files:
        groups[one.sha256].append(one.id)
    found = [identity for group in groups.values() if len(group) > 1 for identity in group]
    return _issue("duplicates", "warning", "pictures are there more than once, byte for byte", found)


def _near_duplicates(files: Sequence[HealthFile]) -> list[HealthIssue]:
    known = [(one.id, one.sha256, one.likeness) for one in files if one.likeness is not None]
    pairs = near_pairs([likeness for _, _, likeness in known])
    found: dict[str, None] = {}
    for one, other in pairs:
        if known[one][1] != known[other][1]:
            found[known[one][0]] = found[known[other][0]] = None
    return _issue("near_duplicates", "warning", "pictures look nearly the same", list(found))


def near_pairs(hashes: Sequence[int], most_bits: int = NEAR_BITS) -> list[tuple[int, int]]:
    """Return the places of hashes that differ in few bits.

    Of two that differ in at most three bits, at least one of four parts of 16 bits is the same: only those are
    compared.
    """
    found: set[tuple[int, int]] = set()
    parts = most_bits + 1
    width = 64 // parts
    for part in range(parts):
        groups: dict[int, list[int]] = defaultdict(list)
        for place, value in enumerate(hashes):
            groups[(value >> part * width) & (1 << width) - 1].append(place)
        for group in groups.values():
            group = group[
                :1000
            ]  # flat pictures are all alike: one large group tells no more than a small one
            for place, one in enumerate(group):
                found.update(
                    (one, other)
                    for other in group[place + 1 :]
                    if differing_bits(hashes[one], hashes[other]) <= most_bits
                )
    return sorted(found)


def _suspicious(files: Sequence[HealthFile]) -> list[HealthIssue]:
    doubted = sorted((one for one in files if one.doubt >= DOUBT), key=lambda one: -one.doubt)
    return _issue(
        "suspicious",
        "warning",
        "a model disagrees with the labels, most of all with the first",
        [one.id for one in doubted],
    )


def dataset_health(connection: sa.Connection, dataset_id: str) -> VisionHealth:
    """Return the health of a data set."""
    doubts: Mapping[int, tuple[float, int]] = {
        row.file_number: (row.doubt, row.revision)
        for row in connection.execute(
            sa.select(opinion)
            .join(file, file.c.number == opinion.c.file_number)
            .where(file.c.dataset_id == dataset_id)
        )
    }
    rows = connection.execute(
        sa.select(file).where(file.c.dataset_id == dataset_id).order_by(file.c.number)
    ).all()
    return judge(
        [_health_file(row, doubts) for row in rows if row.kind != "film"],
        class_names(connection, dataset_id, "label"),
        class_names(connection, dataset_id, "category"),
        sum(row.kind == "film" for row in rows),
    )


def _health_file(row: Any, doubts: Mapping[int, tuple[float, int]]) -> HealthFile:
    doubt, revision = doubts.get(row.number, (0.0, row.revision))
    return HealthFile(
        id=row.id,
        sha256=row.sha256,
        width=row.width,
        height=row.height,
        split=row.split,
        state=row.state,
        review=row.review,
        category=row.category,
        shapes=decode_shapes(row.shapes),
        likeness=row.likeness,
        doubt=doubt if revision == row.revision else 0.0,  # labels that were changed since are not doubted
    )


def look_at_all(
    store: LibraryStore,
    blobs: BlobFolder,
    dataset_id: str,
    report: Callable[[int, int], object] | None = None,
) -> int:
    """Look at those pictures whose likeness is not known yet; return how many were looked at."""
    with store.reading() as connection:
        rows = connection.execute(
            sa.select(file.c.number, file.c.sha256, file.c.media).where(
                file.c.dataset_id == dataset_id, file.c.kind != "film", file.c.likeness.is_(None)
            )
        ).all()
    for start in range(0, len(rows), 200):
        found = []
        for row in rows[start : start + 200]:
            try:
                pixels = decode(blobs.path(row.sha256, row.media), max_side=64)
            except PictureError:
                continue
            found.append({"of": row.number, "value": perceptual_hash(pixels)})
        with store.writing() as connection:
            if found:
                connection.execute(
                    sa.update(file)
                    .where(file.c.number == sa.bindparam("of"))
                    .values(likeness=sa.bindparam("value")),
                    found,
                )
        if report is not None:
            report(min(start + 200, len(rows)), len(rows))
    return len(rows)
