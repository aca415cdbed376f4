"""A store of models on disk, safe among processes that push, tag, read and die at any moment.

    STORE/
      .lock                       held for moments, while something changes
      .drafts/                    what is being pushed
      digits/
        catalogue.json            versions, checksums, aliases: a version is there once this says so
        1/model.onnx
        2/model.onnx  2/model.onnx.data

A push copies its files into a draft with no lock held, moves the draft to the next number, and replaces the catalogue;
only the last counts. Whoever pushes next removes what the dead left behind. Readers take no lock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from weft.errors import ModelError
from weft.files import drafting, locked
from weft.serve.card import read_card
from weft.serve.onnx_file import external_files
from weft.serve.store.catalogue import (
    CUSTOM,
    LATEST,
    MODEL,
    AliasChange,
    Catalogue,
    StoredFile,
    VersionRecord,
    check_alias,
    check_name,
    check_weights_name,
    split_reference,
)
from weft.serve.store.copying import checksum, copy, sync
from weft.serve.store.custom import custom_card, is_custom
from weft.serve.store.entry import Entry, default_store

CATALOGUE = "catalogue.json"
DRAFTS = ".drafts"


class Store:
    """Models in a folder. Any number of processes may use one at once."""

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else default_store()

    # -- reading: no lock ----------------------------------------------------------------------------

    def list(self, name: str | None = None) -> tuple[Entry, ...]:
        """All versions, or those of one name, oldest first. Names in `damaged()` are left out of all."""
        if name is not None:
            check_name(name)
            found = self._read(name)
            if not found.versions:
                raise self._unknown(name)
            catalogues = [found]
        else:
            catalogues = [found for found in self._catalogues() if isinstance(found, Catalogue)]
        return tuple(
            self._entry(catalogue, version)
            for catalogue in catalogues
            for version in sorted(catalogue.versions)
        )

    def names(self) -> tuple[str, ...]:
        """The names that have a version, and those whose catalogue is damaged, sorted."""
        known = zip(self._names(), self._catalogues(), strict=True)
        return tuple(name for name, found in known if not isinstance(found, Catalogue) or found.versions)

    def damaged(self) -> dict[str, ModelError]:
        """The names whose catalogue cannot be read, each with its error; the others can be used."""
        known = zip(self._names(), self._catalogues(), strict=True)
        return {name: found for name, found in known if isinstance(found, ModelError)}

    def resolve(self, reference: str) -> Entry:
        """The version that `name@3`, `name@production` or `name` means now."""
        name, which = split_reference(reference)
        catalogue = self._read(name)
        if not catalogue.versions:
            raise self._unknown(name)
        return self._entry(catalogue, catalogue.find(which))

    def history(self, name: str) -> tuple[AliasChange, ...]:
        """The changes of the aliases of a name, oldest first."""
        check_name(name)
        found = self._read(name)
        if not found.versions:
            raise self._unknown(name)
        return found.history

    def verify(self, reference: str | Entry) -> Entry:
        """Read every byte of a version again and compare it with what was pushed."""
        entry = self.resolve(reference) if isinstance(reference, str) else reference
        for file in entry.record.files:
            path = entry.path.with_name(file.name)
            try:
                found = checksum(path)
            except OSError as error:
                raise ModelError(
                    f"{entry.name}@{entry.version} must be whole, got {path}: {error.strerror}"
                ) from error
            if found != file:
                raise _changed(entry, file, found)
        return entry

    def pull(self, reference: str, to: str | os.PathLike[str], *, replace: bool = False) -> Path:
        """Copy a version to a file, or into a folder that exists; what arrives is what was pushed."""
        entry = self.resolve(reference)
        target = Path(to)
        if target.is_dir():
            target = target / f"{entry.name}{entry.path.suffix}"
        if not target.absolute().parent.is_dir():
            raise ModelError(f"a model must be pulled into a folder that exists, got {target.parent}")
        # Weights keep their names: the model refers to them by these.
        targets = [target, *(target.with_name(file.name) for file in entry.record.files[1:])]
        for path in targets:
            if path.exists() and not replace:
                raise ModelError(f"{path} must not exist yet; choose another file, or replace it (--force)")
        drafts = [path.with_name(f".{path.name}.{os.getpid()}") for path in targets]
        try:
            for file, draft in zip(entry.record.files, drafts, strict=True):
                found = copy(entry.path.with_name(file.name), draft, file.name)
                if found != file:
                    raise _changed(entry, file, found)
            for draft, path in reversed(list(zip(drafts, targets, strict=True))):
                draft.replace(path)
        finally:
            for draft in drafts:
                draft.unlink(missing_ok=True)
        return target

    # -- changing ----------------------------------------------------------------------------------

    def push(
        self, path: str | os.PathLike[str], name: str | None = None, aliases: Sequence[str] = ()
    ) -> Entry:
        """Keep a copy of an ONNX file as the next version of `name`, by default the name on its card.

        A zip is kept, too, if it is a trained custom model.
        """
        source = Path(path)
        custom = is_custom(source)
        # Before anything is made: it says what is no ONNX file.
        names = (source.name, *(() if custom else external_files(source)))
        card = custom_card(source) if custom else read_card(source)
        name = name or card.name or source.stem
        check_name(name)
        for alias in aliases:
            check_alias(alias)
        try:
            drafts = self.folder / DRAFTS
            drafts.mkdir(parents=True, exist_ok=True)
            with drafting(drafts) as draft:
                return self._publish(draft, name, self._gather(draft, source, names), aliases)
        except OSError as error:
            raise ModelError(f"{self.folder} must be a folder that can be written: {error}") from error

    def tag(self, reference: str, alias: str) -> Entry:
        """Let the alias mean this version from now on."""
        name, which = split_reference(reference)
        with self._changing(name) as catalogue:
            version = catalogue.find(which)
            return self._entry(self._write(catalogue.tagged(version, alias, _now())), version)

    def untag(self, reference: str) -> Entry:
        """Forget the alias in `name@alias`; the version stays."""
        name, alias = split_reference(reference)
        if alias is None or alias == LATEST or alias.isdecimal():
            raise ModelError(f"an alias to forget must be named NAME@ALIAS, got {reference!r}")
        with self._changing(name) as catalogue:
            version = catalogue.aliases.get(alias, 0)
            return self._entry(self._write(catalogue.untagged(alias, _now())), version)

    def rm(self, reference: str, *, every: bool = False) -> tuple[Entry, ...]:
        """Remove the version `name@3`, or every version of `name`; not one that an alias means."""
        name, which = split_reference(reference)
        if (which is None) is not every or (which and not which.isdecimal()):
            raise ModelError(
                f"a model to remove must be one version or all of them, got {reference!r}; write NAME@3, or NAME --all"
            )
        with self._changing(name) as catalogue:
            gone = tuple(catalogue.versions) if every else (catalogue.find(which),)
            entries = tuple(self._entry(catalogue, version) for version in sorted(gone))
            self._write(catalogue.removed(gone))
            for entry in entries:
                shutil.rmtree(entry.path.parent, ignore_errors=True)  # what stays is swept by the next push
        return entries

    # -- how -----------------------------------------------------------------------------------------

    def _gather(self, draft: Path, source: Path, names: Sequence[str]) -> VersionRecord:
        files = []
        for number, file in enumerate(names):
            kept = file if number else CUSTOM if is_custom(source) else MODEL
            if number:
                check_weights_name(kept)
            try:
                # Weights are no links: the graph names them, and its maker may be a stranger.
                files.append(copy(source.with_name(file), draft / kept, kept, follow=not number))
            except FileNotFoundError as error:
                raise ModelError(
                    f"{source} must have its weights beside it, got no {source.with_name(file)}"
                ) from error
        # The source may have changed since it was looked at.
        _ = custom_card(draft / CUSTOM) if is_custom(source) else read_card(draft / MODEL)
        sync(draft)
        return VersionRecord(tuple(files), _now())

    def _publish(self, draft: Path, name: str, record: VersionRecord, aliases: Sequence[str]) -> Entry:
        with locked(self.folder / ".lock"):
            catalogue = self._read(name)
            home = self.folder / name
            if not (home / CATALOGUE).exists():
                self._begin(home, catalogue)
            _sweep_versions(home, catalogue)
            version = catalogue.next
            draft.rename(home / str(version))
            return self._entry(self._write(catalogue.pushed(record, aliases)), version)

    @contextmanager
    def _changing(self, name: str) -> Iterator[Catalogue]:
        if not (self.folder / name / CATALOGUE).exists():
            raise self._unknown(name)
        try:
            with locked(self.folder / ".lock"):
                catalogue = self._read(name)
                if not catalogue.versions:
                    raise self._unknown(name)
                yield catalogue
        except OSError as error:
            raise ModelError(f"{self.folder} must be a folder that can be written: {error}") from error

    def _begin(self, home: Path, catalogue: Catalogue) -> None:
        """Make the folder of a name; its empty catalogue shows from then on that what is in it is the store's."""
        if home.exists() and not (home.is_dir() and not any(home.iterdir())):
            raise ModelError(
                f"{home} must be a folder of the store, got one with other files and no {CATALOGUE}; "
                "choose another name or another store"
            )
        home.mkdir(exist_ok=True)
        self._write(catalogue)

    def _catalogues(self) -> Sequence[Catalogue | ModelError]:
        """The catalogue of each name, or why it cannot be read."""
        found: list[Catalogue | ModelError] = []
        for name in self._names():
            try:
                found.append(self._read(name))
            except ModelError as error:
                found.append(error)
        return found

    def _read(self, name: str) -> Catalogue:
        try:
            text = (self.folder / name / CATALOGUE).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return Catalogue(name)
        except OSError as error:
            raise ModelError(f"{self.folder} must be a store that can be read: {error}") from error
        return Catalogue.from_text(name, text)

    def _write(self, catalogue: Catalogue) -> Catalogue:
        """The one moment at which something changes."""
        path = self.folder / catalogue.name / CATALOGUE
        draft = path.with_name(f".{CATALOGUE}.new")  # under the lock, so nobody else's
        with draft.open("w") as file:
            file.write(catalogue.to_text())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync(path.parent)
        return catalogue

    def _entry(self, catalogue: Catalogue, version: int) -> Entry:
        newest = (LATEST,) if catalogue.versions and version == max(catalogue.versions) else ()
        record = catalogue.versions[version]
        path = self.folder / catalogue.name / str(version) / record.files[0].name
        return Entry(path, catalogue.name, version, (*newest, *catalogue.aliases_of(version)), record)

    def _names(self) -> Sequence[str]:
        if self.folder.exists() and not self.folder.is_dir():
            raise ModelError(f"a store must be a folder, got the file {self.folder}; name another")
        return sorted(path.parent.name for path in self.folder.glob(f"[!.]*/{CATALOGUE}"))

    def _unknown(self, name: str) -> ModelError:
        return ModelError(
            f"a model must be in the store {self.folder}, got {name!r}; it has {', '.join(self.names()) or 'none'}"
        )


def _sweep_versions(home: Path, catalogue: Catalogue) -> None:
    """Remove folders that the catalogue does not name: of a push that died, or of a removal that did."""
    for path in home.iterdir():
        if path.name.isdecimal() and int(path.name) not in catalogue.versions:
            shutil.rmtree(path)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _changed(entry: Entry, file: StoredFile, found: StoredFile) -> ModelError:
    return ModelError(
        f"{entry.name}@{entry.version} must be what was pushed, got another {file.name}: sha256 {found.sha256[:12]} "
        f"of {found.size} bytes in place of {file.sha256[:12]} of {file.size}; push the model again"
    )
