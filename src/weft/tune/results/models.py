"""The model that a trial left: an ONNX file in its folder, which goes to the model store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from weft.text import shorten
from weft.tune.study.config import StudyError
from weft.tune.study.state import TrialRecord

if TYPE_CHECKING:
    from weft.serve.store import Entry

FOLDERS = ("outputs", "checkpoints")  # of a trial, where its model is looked for


@dataclass(frozen=True)
class TrialModel:
    """The files that one trial saved, in the folder of its study."""

    trial: int
    home: Path | None  # the folder of the trial; None: it was given none

    @property
    def _homes(self) -> tuple[Path, ...]:
        return () if self.home is None else tuple(self.home / name for name in FOLDERS)

    def _named_files(self, files: Sequence[Path]) -> str:
        names = [str(path.relative_to(self.home)) for path in files if self.home is not None]
        return shorten(", ".join(names)) if names else "nothing"

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that the trial saved, sorted."""
        return tuple(sorted(path for home in self._homes for path in home.rglob("*") if path.is_file()))

    @property
    def path(self) -> Path:
        """The one ONNX file that the trial saved."""
        found = [path for path in self.files if path.suffix == ".onnx"]
        if len(found) != 1:
            raise StudyError(
                f"trial {self.trial} must have saved one ONNX file to have a model, got "
                f"{self._named_files(found or self.files)}; "
                + ("name one of them" if found else "export it into trial.checkpoint or $WEFT_CHECKPOINT")
            )
        return found[0]

    def push(
        self,
        name: str,
        aliases: Sequence[str] = (),
        *,
        path: str | None = None,
        store: str | Path | None = None,
    ) -> Entry:
        """Keep the model as the next version of `name` in the model store; `path` names one of several files."""
        from weft.serve.store import Store

        return Store(store).push(self.path if path is None else self._named(path), name, aliases)

    def _named(self, path: str) -> Path:
        for home in self._homes:
            found = home / path
            if found.is_file() and found.resolve().is_relative_to(home.resolve()):
                return found
        raise StudyError(
            f"a model must be a file that trial {self.trial} saved, got {path!r}; it saved "
            f"{self._named_files(self.files)}"
        )


@dataclass(slots=True, eq=False)
class BestTrial(TrialRecord):
    """The best trial of a study, and where it saved its files."""

    home: Path | None = None

    def __eq__(self, other: object) -> bool:
        """Return whether another is the same trial, whether or not it knows where its files are."""
        if not isinstance(other, TrialRecord):
            return NotImplemented
        return all(
            getattr(self, one.name) == getattr(other, one.name) for one in fields(TrialRecord) if one.compare
        )

    __hash__ = None  # type: ignore[assignment]  # as that of any trial: it changes

    @classmethod
    def of(cls, trial: TrialRecord, home: Path | None) -> BestTrial:
        """Return a trial with the folder of its files."""
        return cls(**{one.name: getattr(trial, one.name) for one in fields(TrialRecord)}, home=home)

    @property
    def value(self) -> float:
        """The first metric of the trial."""
        return self.values[0] if self.values is not None else self.curve[-1]

    @property
    def model(self) -> TrialModel:
        """What the trial saved, which `push` brings to the model store."""
        return TrialModel(self.number, self.home)
