"""Requests and answers about data sets of pictures; their views are those of the library (weft.vision.views)."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from weft.documents import Document
from weft.jobs.api.types.common import Limit, Text
from weft.vision.views import (
    Review,
    ShapeView,
    VisionDataset,
    VisionFile,
    VisionTask,
    VisionVersion,
)

PictureSetName = Annotated[str, Meta(min_length=1, max_length=64)]
ClassName = Annotated[str, Meta(min_length=1, max_length=64)]
Colour = Annotated[str, Meta(pattern="^#[0-9a-f]{6}$")]
FileIds = Annotated[tuple[Annotated[str, Meta(max_length=64)], ...], Meta(max_length=10_000)]
LongText = Annotated[str, Meta(max_length=10_000)]
StateFilter = Literal["all", "unlabelled", "labelled", "auto", "review"]


class VisionDatasets(msgspec.Struct, frozen=True):
    """All data sets of pictures that the caller may see."""

    datasets: tuple[VisionDataset, ...]


class NewVisionDataset(Document, frozen=True):
    """A data set to make."""

    name: PictureSetName
    description: LongText = ""


class VisionDatasetChanges(Document, frozen=True):
    """Changes of a data set; what is not named stays."""

    name: PictureSetName | None = None
    description: LongText | None = None
    shares: Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=1000)] | None = None
    cover: Text | None = None


class VisionUploadQuery(Document, frozen=True):
    """The name of a file that is sent, and what is said of it."""

    name: Annotated[str, Meta(min_length=1, max_length=1000)]
    category: ClassName | None = None
    skip_duplicates: bool = False


class VisionUploadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The file that came of an upload, or the task that imports it."""

    file: VisionFile | None = None
    task: VisionTask | None = None


class VisionFilesQuery(Document, frozen=True):
    """A page of files."""

    state: StateFilter = "all"
    label: ClassName | None = None
    category: ClassName | None = None
    kind: Literal["picture", "film", "frame"] | None = None
    parent: Text | None = None
    query: LongText = ""  # camera == "X" and width > 800
    sort: Literal["added", "-added", "name", "-name", "confidence", "-confidence", "updated", "-updated"] = (
        "added"
    )
    after: Text | None = None
    limit: Limit = 100


class VisionThumbnailQuery(Document, frozen=True):
    """The longer side of a thumbnail in pixels."""

    side: Literal[64, 128, 256, 512, 1024, 2048] = 256


class VisionLabelsBody(Document, frozen=True):
    """The labels of a file, as a whole; `revision` is the one that they were made from."""

    revision: Annotated[int, Meta(ge=0)]
    shapes: Annotated[tuple[ShapeView, ...], Meta(max_length=20_000)] = ()
    category: ClassName | None = None
    category_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    review: Review | None = None  # none: stays


class VisionMetadataBody(Document, frozen=True):
    """Keys and values that users give a file; an empty value removes a key."""

    metadata: Annotated[dict[Annotated[str, Meta(max_length=100)], LongText], Meta(max_length=200)]


class VisionChange(Document, frozen=True):
    """An action on many files: those that are named, or all that a filter lets through."""

    action: Literal["copy", "move", "delete", "categorise", "accept", "reject", "review", "approve"]
    files: FileIds = ()
    filter: VisionFilesQuery | None = None  # in place of files
    target: Text | None = None  # data set, of copy and move
    category: ClassName | None = None  # of categorise; none: without
    confidence: Annotated[float, Meta(ge=0, le=1)] = 0.0  # of accept: at least this; of reject: below this


class VisionChangeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The files that an action changed."""

    changed: int
    left: int  # files that were not there, or had nothing to change


class VisionLabelEntry(Document, frozen=True):
    """A label or a category in the wanted order."""

    name: ClassName
    colour: Colour | None = None  # none: stays, or is chosen
    was: ClassName | None = None  # its name until now, to rename it


class VisionLabelsChange(Document, frozen=True):
    """All labels or categories of a data set in order; those that are left out are removed if no file has them."""

    labels: Annotated[tuple[VisionLabelEntry, ...], Meta(max_length=10_000)] | None = None
    categories: Annotated[tuple[VisionLabelEntry, ...], Meta(max_length=10_000)] | None = None


class VisionVersions(msgspec.Struct, frozen=True):
    """The versions of a data set, newest first."""

    versions: tuple[VisionVersion, ...]


class NewVisionVersion(Document, frozen=True):
    """A version to freeze."""

    note: LongText = ""


class VisionHealthQuery(Document, frozen=True):
    """Parts of the health that take longer."""

    near: bool = False  # near duplicates: every picture is looked at once


class VisionAugmentStep(Document, frozen=True):
    """One way to change pictures, with its level."""

    kind: Literal[
        "blur", "sharpen", "colour", "crop", "flip_left_right", "flip_top_bottom", "rotate", "noise"
    ]
    level: Annotated[float, Meta(ge=0, le=1)] = 0.5


class VisionAugmentBody(Document, frozen=True):
    """A new data set of changed pictures: one for each step, and the pictures as they are."""

    name: PictureSetName
    steps: Annotated[tuple[VisionAugmentStep, ...], Meta(min_length=1, max_length=50)]
    keep: bool = True  # the pictures as they are, too
    seed: Annotated[int, Meta(ge=0, le=2**31)] = 0


class VisionCloneBody(Document, frozen=True):
    """The name of a copy."""

    name: PictureSetName


class VisionExportQuery(Document, frozen=True):
    """The format of an export, and the version; none: as it is now."""

    format: Literal["coco", "yolo", "voc", "ibm", "folders"] = "coco"
    version: Annotated[int, Meta(ge=1)] | None = None


class VisionImportBody(Document, frozen=True):
    """An import of pictures at addresses, or of a data set that the service can read."""

    urls: Annotated[tuple[Annotated[str, Meta(max_length=4000)], ...], Meta(min_length=1, max_length=10_000)]
    skip_duplicates: bool = False


class VisionFramesBody(Document, frozen=True):
    """Frames to capture of a film: at times, or every N seconds."""

    times_s: Annotated[tuple[Annotated[float, Meta(ge=0)], ...], Meta(max_length=10_000)] = ()
    every_s: Annotated[float, Meta(gt=0)] | None = None


class VisionTrackBody(Document, frozen=True):
    """A track whose boxes are wanted in the frames between those where it was drawn."""

    track: Annotated[str, Meta(min_length=1, max_length=64)]


class VisionAssistBody(Document, frozen=True):
    """A tool that finds the outline of an object, and where to look."""

    tool: Literal["grabcut", "wand", "model"]
    box: tuple[float, float, float, float] | None = None
    point: tuple[float, float] | None = None
    tolerance: Annotated[float, Meta(ge=0, le=255)] = 16


class VisionAssistAnswer(msgspec.Struct, frozen=True):
    """Outer rings of what a tool found."""

    polygons: tuple[tuple[tuple[float, float], ...], ...]


class VisionTasks(msgspec.Struct, frozen=True):
    """Background work, newest first."""

    tasks: tuple[VisionTask, ...]


class VisionTasksQuery(Document, frozen=True):
    """Tasks of one data set, or of all."""

    dataset: Text | None = None
    limit: Limit = 100
