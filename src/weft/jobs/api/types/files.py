"""Files of jobs: code, outputs, and how two jobs differ."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from weft.documents import Document
from weft.jobs.api.types.common import Id

Path = Annotated[str, Meta(max_length=1024)]


class FilesQuery(Document, frozen=True):
    """The folder that is listed."""

    path: Path = ""


class FileEntry(msgspec.Struct, frozen=True):
    """One file or folder of a job."""

    path: str
    size: int
    is_dir: bool
    modified_ms: int
    kind: Literal["folder", "text", "image", "table", "other"]  # how a preview may show it


class FilesAnswer(msgspec.Struct, frozen=True):
    """The content of a folder of a job: outputs, checkpoints, attempts."""

    entries: tuple[FileEntry, ...]
    truncated: bool  # there are more than are shown


class FileQuery(Document, frozen=True):
    """The part of a file that is wanted."""

    preview: bool = False  # at most 1 MiB, of a kind that a browser does not run


class CodeFileView(msgspec.Struct, frozen=True):
    """One file of a job's code."""

    path: str
    kind: Literal["file", "program", "link"]
    size: int
    digest: str


class CodeAnswer(msgspec.Struct, frozen=True):
    """The code that a job runs."""

    files: tuple[CodeFileView, ...]
    git_commit: str | None
    git_dirty: bool


class SnapshotAnswer(msgspec.Struct, frozen=True):
    """A snapshot's digest, and the contents that must be sent before a job can use it."""

    digest: str
    missing: tuple[str, ...]


class DiffQuery(Document, frozen=True, rename={"other": "with"}):
    """The job to compare with."""

    other: Id


class ValueDiff(msgspec.Struct, frozen=True):
    """A field that differs; null where a job does not have it."""

    path: str
    before: str | None
    after: str | None


class CodeDiff(msgspec.Struct, frozen=True):
    """A file that differs."""

    path: str
    change: Literal["added", "removed", "changed"]
    diff: str | None  # in unified form; null for binary and for long files


class DiffAnswer(msgspec.Struct, frozen=True):
    """The differences from one job to another."""

    spec: tuple[ValueDiff, ...]
    code: tuple[CodeDiff, ...]
    environment: tuple[ValueDiff, ...]
    truncated: bool  # there are more files than are shown
