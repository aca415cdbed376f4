"""Plug-in algorithms that administrators installed: folders of the service, and the searchers of studies that use them.

A study names one by `search: {name: installed, algorithm: NAME, parameters: [...], options: {...}}`. Its code runs as
the service's user, so only administrators install; others choose among what is there.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import UsageError
from weft.files import write_whole
from weft.jobs.code.blobs import BlobStore
from weft.jobs.code.snapshot import CodeSnapshot
from weft.text import suggestion
from weft.tune.samplers.base import Searcher, SearcherFailed, Suggestion
from weft.tune.samplers.plugin import PluginSearcher
from weft.tune.samplers.plugin_host import CLASS, MAIN
from weft.tune.study.config import StudyConfig, StudyError
from weft.tune.study.state import SearchState

INSTALLED = "installed"  # the name of the search in a study's settings
ABOUT = "about.json"
_NAME = re.compile(r"^[A-Za-z][A-Za-z0-9_.-]{0,99}$")


class InstalledAlgorithm(msgspec.Struct, frozen=True):
    """A plug-in algorithm, as its administrator installed it."""

    name: str
    user: str
    installed_ms: int
    files: int


class InstalledAlgorithms:
    """The plug-in algorithms of one service. Its methods may be called from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def all(self) -> list[InstalledAlgorithm]:
        """Return all algorithms by name."""
        found = sorted(self._folder.glob(f"*/{ABOUT}")) if self._folder.is_dir() else []
        return [msgspec.json.decode(path.read_bytes(), type=InstalledAlgorithm) for path in found]

    def find(self, name: str) -> InstalledAlgorithm:
        """Return one algorithm; StudyError if there is none."""
        known = {one.name: one for one in self.all()}
        if name not in known:
            near = suggestion(name, list(known)) if known else "POST /hypersearch/algorithm/install makes one"
            raise StudyError(f"an algorithm must be installed, got {name[:80]!r}; {near}")
        return known[name]

    def install(
        self, name: str, blobs: BlobStore, snapshot: CodeSnapshot, *, user: str, now_ms: int
    ) -> InstalledAlgorithm:
        """Keep an algorithm whose files are in the blob store."""
        if not _NAME.match(name):
            raise UsageError(
                f"name must be a letter and then letters, digits, _, . or -, got {name[:80]!r}; take another"
            )
        home = self._folder / name
        if home.exists():
            raise FileExistsError(f"name must be new, got {name}, which is installed; remove it first")
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._folder / f".{name}.draft"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            blobs.write_out(snapshot, draft / "code")
            named = [
                path
                for path in (draft / "code").rglob("*.py")
                if f"class {CLASS}" in path.read_text("utf-8", "replace")
            ]
            if len(named) != 1 and not (draft / "code" / MAIN).is_file():
                raise UsageError(
                    f"an algorithm must have one file with class {CLASS}, got {len(named)}; put it into {MAIN}"
                )
            made = InstalledAlgorithm(name, user, now_ms, len(snapshot.files))
            write_whole(draft / ABOUT, msgspec.json.encode(made).decode())
            draft.rename(home)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return made

    def remove(self, name: str) -> None:
        """Remove an algorithm; studies that use it fail at their next suggestion."""
        self.find(name)
        shutil.rmtree(self._folder / name)

    def searcher(self, config: StudyConfig) -> Searcher | None:
        """Return the searcher of a study that uses an installed algorithm; None: it uses another."""
        given = config.search
        if not isinstance(given, dict) or given.get("name") != INSTALLED:
            return None
        try:
            settings = msgspec.convert({k: v for k, v in given.items() if k != "name"}, _Settings)
        except msgspec.ValidationError as error:
            raise StudyError(f"search installed must have algorithm and parameters, got {error}") from None
        self.find(settings.algorithm)
        folder = self._folder / settings.algorithm / "code"
        return PluginSearcher(settings.algorithm, folder, settings.parameters, settings.options)

    def searcher_or_failure(self, config: StudyConfig) -> Searcher | None:
        """Return the same; one whose algorithm is gone fails its study when it is asked for a point."""
        try:
            return self.searcher(config)
        except StudyError as error:
            return GoneSearcher(str(error))


class GoneSearcher:
    """The searcher of a study whose algorithm was removed."""

    def __init__(self, message: str) -> None:
        self._message = message

    def suggest(self, state: SearchState, number: int) -> Suggestion | None:
        """Fail: there is nobody to ask."""
        raise SearcherFailed(self._message)


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a study says of an installed algorithm."""

    algorithm: str
    parameters: list[dict[str, Any]]
    options: dict[str, str] = {}
