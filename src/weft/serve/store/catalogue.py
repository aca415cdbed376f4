"""The catalogue of one name in a store: its versions, their files and checksums, and which version an alias means.

A catalogue is one small JSON file, replaced as a whole: whatever happens to a store is one change from one catalogue
to the next. Numbers are given once and never again, also after a version is removed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType

import msgspec

from weft.errors import ModelError

LATEST = "latest"  # always the newest version
LONGEST_NUMBER = 9  # digits of a version
MODEL = "model.onnx"  # the first file of every version
CUSTOM = "custom.zip"  # or this alone: a model that is somebody's own code, see `custom.py`
CHANGES_KEPT = 1000  # of the aliases of a name: a catalogue stays small
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")
# Endings of files of weights, as exporters name them. A name is kept by `pull`, so no other may come in.
ENDINGS = (".data", ".bin", ".weights", ".weight", ".bias", ".dat", ".raw", "_data")
_WEIGHTS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:+@ -]{0,200}(" + "|".join(map(re.escape, ENDINGS)) + ")")
_UUID = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)  # what the onnx package calls a file of weights


@dataclass(frozen=True)
class StoredFile:
    """One file of a version."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class VersionRecord:
    """One version: its files, the model first, and when it was pushed (ISO 8601, UTC)."""

    files: tuple[StoredFile, ...]
    created: str

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def sha256(self) -> str:
        """Of the only file; of several, that of the lines `sha256sum` would print for them."""
        if len(self.files) == 1:
            return self.files[0].sha256
        lines = "".join(f"{file.sha256}  {file.name}\n" for file in self.files)
        return hashlib.sha256(lines.encode()).hexdigest()


@dataclass(frozen=True)
class AliasChange:
    """One change of an alias: the version that it means since then, 0 if it was forgotten (ISO 8601, UTC)."""

    alias: str
    version: int
    at: str


class CatalogueFile(msgspec.Struct, frozen=True):
    """A catalogue as it lies in its JSON file."""

    next: int
    aliases: dict[str, int]
    versions: dict[int, VersionRecord]
    history: tuple[AliasChange, ...] = ()


@dataclass(frozen=True)
class Catalogue:
    """All of one name; each change gives a new one."""

    name: str
    next: int = 1
    versions: Mapping[int, VersionRecord] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    aliases: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    history: tuple[AliasChange, ...] = ()  # of the aliases, oldest first

    def pushed(self, record: VersionRecord, aliases: Iterable[str] = ()) -> Catalogue:
        found = replace(self, next=self.next + 1, versions={**self.versions, self.next: record})
        for alias in aliases:
            found = found.tagged(self.next, alias, record.created)
        return found

    def tagged(self, version: int, alias: str, at: str = "") -> Catalogue:
        check_alias(alias)
        self._known(version)
        if self.aliases.get(alias) == version:
            return self
        return replace(
            self, aliases={**self.aliases, alias: version}, history=self._changed(alias, version, at)
        )

    def untagged(self, alias: str, at: str = "") -> Catalogue:
        if alias not in self.aliases:
            raise ModelError(f"{self.name} must have the alias {alias!r}, got {self._choices()}")
        rest = {key: value for key, value in self.aliases.items() if key != alias}
        return replace(self, aliases=rest, history=self._changed(alias, 0, at))

    def _changed(self, alias: str, version: int, at: str) -> tuple[AliasChange, ...]:
        return (*self.history, AliasChange(alias, version, at))[-CHANGES_KEPT:]

    def removed(self, versions: Iterable[int]) -> Catalogue:
        gone = set(versions)
        for version in sorted(gone):
            self._known(version)
            if names := self.aliases_of(version):
                raise ModelError(
                    f"{self.name}@{version} must have no alias to be removed, got {', '.join(names)}; "
                    f"tag another version, or `weft model untag {self.name}@{names[0]}`"
                )
        kept = {number: record for number, record in self.versions.items() if number not in gone}
        return replace(self, versions=kept)

    def find(self, which: str | None) -> int:
        """The version that `which` means: a number, an alias, or nothing for the newest."""
        if not self.versions:
            raise ModelError(f"{self.name} must have a version, got none; push one first")
        if which is None or which == LATEST:
            return max(self.versions)
        if which.isdecimal() and len(which) <= LONGEST_NUMBER:
            return self._known(int(which))
        if which not in self.aliases:
            raise ModelError(f"{self.name}@{which} must be a version or an alias, got {self._choices()}")
        return self.aliases[which]

    def aliases_of(self, version: int) -> tuple[str, ...]:
        """Those someone gave it; `latest` is nobody's gift."""
        return tuple(sorted(alias for alias, number in self.aliases.items() if number == version))

    def _known(self, version: int) -> int:
        if version not in self.versions:
            raise ModelError(f"{self.name}@{version} must be a version, got {self._choices()}")
        return version

    def _choices(self) -> str:
        numbers = ", ".join(map(str, sorted(self.versions))) or "none"
        return f"versions {numbers}; aliases {', '.join([LATEST, *sorted(self.aliases)])}"

    def to_text(self) -> str:
        data = {
            "next": self.next,
            "aliases": dict(sorted(self.aliases.items())),
            "versions": {str(number): asdict(record) for number, record in sorted(self.versions.items())},
            "history": [asdict(change) for change in self.history],
        }
        return json.dumps(data, indent=1) + "\n"

    @classmethod
    def from_text(cls, name: str, text: str | bytes) -> Catalogue:
        """Return the catalogue in a file, which may be damaged, or made by a stranger to write outside a folder."""
        try:
            data = msgspec.json.decode(text, type=CatalogueFile)
            for record in data.versions.values():
                check_files(record.files)
            for alias, version in data.aliases.items():
                check_alias(alias)
                if version not in data.versions:
                    raise ModelError(f"the alias {alias!r} must mean a version, got {version}")
            for change in data.history:
                check_alias(change.alias)
            if data.versions and not 0 < min(data.versions) <= max(data.versions) < data.next:
                raise ModelError(f"versions must be from 1 to {data.next - 1}, got others")
        except (ValueError, RecursionError) as error:
            raise ModelError(
                f"the catalogue of {name} cannot be read: {error}; mend its catalogue.json, or take the folder away"
            ) from error
        return cls(name, data.next, data.versions, data.aliases, data.history)


def split_reference(reference: str) -> tuple[str, str | None]:
    """`name@3`, `name@production` or `name`."""
    name, at, which = reference.partition("@")
    check_name(name)
    if at and not which:
        raise ModelError(f"a model must be named NAME, NAME@VERSION or NAME@ALIAS, got {reference!r}")
    return name, which or None


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ModelError(
            f"a model's name must be letters, digits, dots, dashes and underscores, got {name!r}; give another"
        )


def check_alias(alias: str) -> None:
    if alias == LATEST:
        raise ModelError(f"an alias must not be {LATEST!r}: it always means the newest version")
    if not _ALIAS.fullmatch(alias):
        raise ModelError(
            f"an alias must begin with a letter and hold letters, digits, dots, dashes and underscores, got {alias!r}"
        )


def check_files(files: Sequence[StoredFile]) -> None:
    """Check the names of a version's files: the model first, then weights that `pull` may write beside it."""
    if len(files) == 1 and files[0].name == CUSTOM:
        return
    if not files or files[0].name != MODEL:
        raise ModelError(f"a version must begin with {MODEL}, got {files[0].name if files else 'no file'}")
    for file in files[1:]:
        check_weights_name(file.name)


def check_weights_name(name: str) -> None:
    """Refuse names of weights that are no plain names of data: hidden files, code, paths."""
    if not (_WEIGHTS.fullmatch(name) or _UUID.fullmatch(name)) or name == MODEL:
        raise ModelError(
            f"weights outside the model must be in a file named like model.data ({', '.join(ENDINGS)}), got {name!r}; "
            "save the model again with one such file"
        )
