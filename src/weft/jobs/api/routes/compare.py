"""Comparing two jobs: specification, code, and environment."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.jobs.api.binding import Handler
from weft.jobs.api.routes.files import snapshot_of
from weft.jobs.api.routes.jobs import environment_of
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.files import CodeDiff, DiffAnswer, DiffQuery, ValueDiff
from weft.jobs.api.views import find
from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.snapshot import CodeSnapshot, SnapshotFile
from weft.jobs.store.jobs import need_job, spec_of

MOST_FILES = 300
_LONGEST_BYTES = 200_000  # of a file whose lines are compared
_LONGEST_LINES = 5000
_ALL_BYTES = 5_000_000  # of all files that are compared: the rest is only named


async def diff(call: ApiCall) -> DiffAnswer:
    query: DiffQuery = call.query
    one = await find(call)
    visible_to = call.identity.visible_to
    other = await call.database.read(lambda c: need_job(c, query.other, visible_to=visible_to))
    specs = await call.database.read(lambda c: [spec_of(c, number) for number in (one.id, other.id)])
    before, after = (flatten(msgspec.to_builtins(spec)) for spec in specs)
    codes = [await snapshot_of(call, found) for found in (one, other)]
    code, cut = await asyncio.to_thread(diff_code, call.state.jobs.blobs, codes[0], codes[1])
    surroundings = [await environment_of(call, found) for found in (one, other)]
    return DiffAnswer(tuple(diff_values(before, after)), code, tuple(diff_values(*surroundings)), cut)


def flatten(value: Any, path: str = "") -> dict[str, str]:
    """Return the fields of nested data by their paths."""
    if isinstance(value, dict) and value:
        parts = [flatten(part, f"{path}.{name}" if path else str(name)) for name, part in value.items()]
        return {name: text for part in parts for name, text in part.items()}
    return {path: value if isinstance(value, str) else msgspec.json.encode(value).decode()}


def diff_values(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[ValueDiff]:
    """Yield the fields that differ, by path."""
    for path in sorted({*before, *after}):
        if before.get(path) != after.get(path):
            yield ValueDiff(path, before.get(path), after.get(path))


def diff_code(
    blobs: BlobStore, before: CodeSnapshot | None, after: CodeSnapshot | None
) -> tuple[tuple[CodeDiff, ...], bool]:
    """Return the files that differ, and whether there are more."""
    old = {file.path: file for file in before.files} if before is not None else {}
    new = {file.path: file for file in after.files} if after is not None else {}
    paths = [path for path in sorted({*old, *new}) if _state(old.get(path)) != _state(new.get(path))]
    left = _ALL_BYTES
    found = []
    for path in paths[:MOST_FILES]:
        one, other = old.get(path), new.get(path)
        size = sum(file.size for file in (one, other) if file is not None)
        text = _diff_file(blobs, path, one, other) if size <= min(left, 2 * _LONGEST_BYTES) else None
        left -= size if text is not None else 0
        found.append(
            CodeDiff(path, "added" if one is None else "removed" if other is None else "changed", text)
        )
    return tuple(found), len(paths) > MOST_FILES


def _state(file: SnapshotFile | None) -> tuple[str, str] | None:
    return (file.digest, file.kind) if file is not None else None


def _diff_file(
    blobs: BlobStore, path: str, one: SnapshotFile | None, other: SnapshotFile | None
) -> str | None:
    sides = [blobs.read(file.digest) if file is not None else b"" for file in (one, other)]
    if any(b"\0" in side for side in sides):
        return None
    lines = [side.decode(errors="replace").splitlines(keepends=True) for side in sides]
    if max(map(len, lines)) > _LONGEST_LINES:
        return None
    changed = difflib.unified_diff(lines[0], lines[1], f"a/{path}", f"b/{path}")
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in changed
    )


HANDLERS: Mapping[str, Handler] = {"diff_jobs": diff}
