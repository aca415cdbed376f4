"""Views of a library: data sets, files, labels, versions and tasks as the service and the command line show them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

FileKind = Literal["picture", "film", "frame"]
LabelState = Literal["unlabelled", "labelled", "auto"]
Review = Literal["", "review", "approved", "changes"]
TaskState = Literal["waiting", "running", "done", "failed", "stopped"]
SplitName = Literal["train", "validation", "test"]


class MaskView(msgspec.Struct, frozen=True):
    """A mask as COCO writes it: height and width, and packed counts."""

    size: tuple[int, int]
    counts: str


class ShapeView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One labelled object of a picture, in pixels of the upright picture."""

    label: str
    box: tuple[float, float, float, float]  # xmin, ymin, xmax, ymax
    polygons: tuple[tuple[tuple[float, float], ...], ...] = ()
    mask: MaskView | None = None
    confidence: float | None = None  # of the model that made it; none: made or accepted by a person
    model: str | None = None
    track: str | None = None
    id: str = ""


class LabelView(msgspec.Struct, frozen=True, kw_only=True):
    """A label of objects, or a category of whole pictures."""

    name: str
    colour: str  # #rrggbb
    pictures: int = 0  # that have it


class DatasetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a data set, counted."""

    pictures: int = 0  # frames of films among them
    films: int = 0
    labelled: int = 0  # by people, or accepted by them
    unlabelled: int = 0
    auto: int = 0  # labelled by models, not accepted yet
    review: int = 0  # that wait for a review


class VisionDataset(msgspec.Struct, frozen=True, kw_only=True):
    """A data set at a glance."""

    id: str
    name: str
    description: str
    owner: str
    mine: bool
    shares: tuple[str, ...]  # names of users who may see and label; "*": everybody
    counts: DatasetCounts
    labels: tuple[LabelView, ...]
    categories: tuple[LabelView, ...]
    cover: str | None  # the id of a file
    created_ms: int
    updated_ms: int
    newest_version: int  # 0: none yet


class VisionFile(msgspec.Struct, frozen=True, kw_only=True):
    """A picture, a film or a frame at a glance."""

    id: str
    dataset: str
    name: str
    kind: FileKind
    width: int
    height: int
    bytes: int
    sha256: str
    state: LabelState
    review: Review
    category: str | None
    category_confidence: float | None
    labels: dict[str, int]  # shapes by label
    confidence: float | None  # the lowest among what models made
    revision: int  # of the labels
    split: SplitName
    parent: str | None  # the film of a frame
    time_s: float | None  # of a frame in its film
    duration_s: float | None  # of a film
    frames_per_s: float | None
    frames: int  # captured of a film
    added_ms: int
    updated_ms: int


class VisionFileDetail(VisionFile, frozen=True, kw_only=True):
    """A file with its labels and all that is known of it."""

    shapes: tuple[ShapeView, ...]
    metadata: dict[str, str]  # of users and from EXIF
    previous: str | None  # file, in the order of import
    next: str | None
    updated_by: str


class VisionFiles(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a data set's files."""

    files: tuple[VisionFile, ...]
    total: int  # that the filter lets through
    next: str | None  # `after` of the next page


class VisionVersion(msgspec.Struct, frozen=True, kw_only=True):
    """An immutable state of a data set."""

    dataset: str
    name: str
    number: int
    digest: str
    note: str
    pictures: int
    shapes: int
    splits: dict[str, int]
    labels: tuple[str, ...]
    categories: tuple[str, ...]
    created_ms: int
    user: str


class VisionTask(msgspec.Struct, frozen=True, kw_only=True):
    """Background work with its progress."""

    id: str
    dataset: str
    kind: str  # import, augment, frames, clone, export, autolabel, duplicates
    state: TaskState
    done: int
    total: int  # 0: not known yet
    message: str
    problems: tuple[str, ...]  # a sentence for each thing that was left out; at most 100
    result: dict[str, Any]
    owner: str
    created_ms: int
    updated_ms: int


class HealthIssue(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of trouble in a data set, with files that show it."""

    kind: str  # unlabelled, few, outside, tiny, crossing, duplicates, near_duplicates, imbalance, suspicious
    level: Literal["info", "warning", "problem"]
    text: str
    count: int
    files: tuple[str, ...]  # the first 100


class SizeBin(msgspec.Struct, frozen=True, kw_only=True):
    """Pictures of about the same size."""

    width: int
    height: int
    count: int


class ClassHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One label or category, counted."""

    name: str
    pictures: int
    shapes: int
    splits: dict[str, int]
    median_area: float  # of its shapes, as a share of the picture


class VisionHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a data set."""

    counts: DatasetCounts
    labels: tuple[ClassHealth, ...]
    categories: tuple[ClassHealth, ...]
    splits: dict[str, int]
    sizes: tuple[SizeBin, ...]  # the most frequent first
    issues: tuple[HealthIssue, ...]
