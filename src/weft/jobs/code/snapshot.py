"""A snapshot: the files of a folder by their digests, and the state of its git repository.

Files that .gitignore or .weftignore name are left out. Only what the server does not have yet is sent to it, so that
submitting a job again sends next to nothing.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

import msgspec

from weft.errors import UsageError
from weft.text import format_size, plural

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

MOST_FILES = 20_000
MOST_BYTES = 500 << 20  # of all files
LARGEST_FILE_BYTES = 100 << 20
MOST_PATH_BYTES = 1024
MOST_DEPTH = 64  # folders within each other
DIFF_BYTES = 4 << 20  # of a git diff that is kept
NEVER = (".git/", "__pycache__/", "*.pyc", ".venv/", "venv/", "node_modules/", ".ipynb_checkpoints/", "weft-runs/",
         "weft-jobs/", ".mypy_cache/", ".pytest_cache/", ".ruff_cache/", ".DS_Store")  # fmt: skip
IGNORE_FILES = (".gitignore", ".weftignore")


class SnapshotFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file of a snapshot."""

    path: str  # relative, with slashes
    kind: Literal["file", "program", "link"]
    digest: str  # of its bytes; of a link, its target
    size: int


class CodeSnapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder at one moment."""

    files: tuple[SnapshotFile, ...]  # by path
    git_commit: str | None = None
    git_diff: str | None = None  # digest of what differs from the commit; None: nothing, or no repository

    @property
    def digest(self) -> str:
        """The digest of all files: equal for equal code, wherever it lies."""
        return hashlib.sha256(msgspec.json.encode(self.files)).hexdigest()

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def blobs(self) -> frozenset[str]:
        """Digests of everything that must be kept with the snapshot."""
        extra = {self.git_diff} if self.git_diff else set()
        return frozenset({file.digest for file in self.files} | extra)


@dataclass(frozen=True)
class Taken:
    """A snapshot, and where its contents can be read."""

    snapshot: CodeSnapshot
    folder: Path
    diff: bytes = b""

    def read(self, digest: str) -> bytes:
        """Return the content with a digest; an error if the file has changed since."""
        if digest == self.snapshot.git_diff:
            return self.diff
        file = next(file for file in self.snapshot.files if file.digest == digest)
        path = self.folder / file.path
        data = os.fsencode(path.readlink()) if file.kind == "link" else path.read_bytes()
        if hashlib.sha256(data).hexdigest() != digest:
            raise UsageError(
                f"files must stay as they are while a job is submitted, got a change in {path}; try again"
            )
        return data


def take_snapshot(folder: Path) -> Taken:
    """Return the snapshot of a folder; too many or too large files are refused by name."""
    if not folder.is_dir():
        raise UsageError(f"code must be a folder, got {folder}; name the folder of the script")
    files = tuple(sorted(_files(folder), key=lambda file: file.path))
    _refuse_large(folder, files)
    commit, diff = _git(folder)
    digest = hashlib.sha256(diff).hexdigest() if diff else None
    return Taken(CodeSnapshot(files, commit, digest), folder, diff)


def _files(root: Path) -> Iterator[SnapshotFile]:
    count = 0
    pending: list[tuple[PurePosixPath, tuple[tuple[PurePosixPath, GitIgnoreSpec], ...]]] = [
        (PurePosixPath(), ((PurePosixPath(), _rules(NEVER)),))
    ]
    while pending:
        relative, ignored = pending.pop()
        folder = root / relative
        if len(relative.parts) > MOST_DEPTH:
            raise UsageError(
                f"code must be at most {MOST_DEPTH} folders deep, got {folder}; leave it out by .weftignore"
            )
        ignored = (*ignored, *_ignore_rules(folder, relative))
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        for entry in found:
            path = relative / entry.name
            if entry.is_dir(follow_symlinks=False):
                if not _is_ignored(path, ignored, folder=True):
                    pending.append((path, ignored))
            elif not _is_ignored(path, ignored):
                count += 1
                if count > MOST_FILES:
                    raise UsageError(
                        f"code must be at most {MOST_FILES} files, got more in {root}; add a .weftignore"
                    )
                if (file := _file(root, path)) is not None:
                    yield file


def _ignore_rules(folder: Path, relative: PurePosixPath) -> Iterator[tuple[PurePosixPath, GitIgnoreSpec]]:
    for name in IGNORE_FILES:
        path = folder / name
        if path.is_file():
            yield relative, _rules(path.read_text(errors="replace").splitlines())


def _rules(lines: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec  # here: commands that send no code load this module, too

    return GitIgnoreSpec.from_lines(lines)


def _is_ignored(
    path: PurePosixPath, rules: tuple[tuple[PurePosixPath, GitIgnoreSpec], ...], folder: bool = False
) -> bool:
    """Return what the last rule that speaks of a path says."""
    verdict = False
    for home, spec in rules:
        answer = spec.check_file(f"{path.relative_to(home)}{'/' * folder}").include
        if answer is not None:
            verdict = answer
    return verdict


def _file(root: Path, path: PurePosixPath) -> SnapshotFile | None:
    """Return one file; None for sockets, pipes and devices."""
    place, name = root / path, str(path)
    if len(os.fsencode(name)) > MOST_PATH_BYTES or not name.isprintable():
        raise UsageError(
            f"paths must be printable and at most {MOST_PATH_BYTES} bytes, got {name!r}; rename it"
        )
    mode = place.lstat().st_mode
    if stat.S_ISLNK(mode):
        target = place.readlink()
        inside = (place.parent / target).resolve().is_relative_to(root.resolve()) and not target.is_absolute()
        if not inside:
            raise UsageError(
                f"links must stay within the code, got {place} -> {target}; copy it, or add a .weftignore"
            )
        return SnapshotFile(
            name, "link", hashlib.sha256(os.fsencode(target)).hexdigest(), len(os.fsencode(target))
        )
    if not stat.S_ISREG(mode):
        return None
    if place.stat().st_size > LARGEST_FILE_BYTES:
        shown = format_size(place.stat().st_size)
        raise UsageError(
            f"a file of the code must be at most {format_size(LARGEST_FILE_BYTES, trimmed=True)}, "
            f"got {place} of {shown}; add it to .weftignore"
        )
    with place.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return SnapshotFile(name, "program" if mode & stat.S_IXUSR else "file", digest, place.stat().st_size)


def _refuse_large(folder: Path, files: tuple[SnapshotFile, ...]) -> None:
    total = sum(file.size for file in files)
    if total > MOST_BYTES:
        largest = sorted(files, key=lambda file: -file.size)[:3]
        named = ", ".join(f"{file.path} ({format_size(file.size)})" for file in largest)
        raise UsageError(
            f"the code must be at most {format_size(MOST_BYTES)}, got {format_size(total)} in "
            f"{plural(len(files), 'file')} of {folder}, most of it {named}; add what is not code to .weftignore"
        )


def _git(folder: Path) -> tuple[str | None, bytes]:
    """Return the commit that a folder is at and what differs from it; nothing where there is no repository."""

    def ask(*words: str) -> bytes | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *words],
                capture_output=True,
                timeout=20,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    commit = ask("rev-parse", "HEAD")
    if commit is None:
        return None, b""
    return commit.decode().strip(), (ask("diff", "--no-ext-diff", "--no-textconv", "HEAD", "--", ".") or b"")[
        :DIFF_BYTES
    ]
