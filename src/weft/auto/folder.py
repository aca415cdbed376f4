"""The folder of a run: its settings, its finished trials and its model, in files that are whole or not there.

run.json             settings and the fingerprint of the table; a run of others is refused
search.json          how many rows models are chosen by
trials/0007.json     a finished trial; trials/0007.npy holds its predictions of rows it was not trained on
progress.json        what the run does now, its columns and warnings, and the leaderboard so far
stop                 made by somebody: the search ends with the trial that goes on, and the run is finished as usual
leaderboard.json, explanation.json, model.pkl, model.onnx, report.html     the result
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weft.auto.config import AutoConfig
from weft.auto.frames import RawTable
from weft.errors import UsageError
from weft.files import write_whole

Array = np.ndarray[Any, Any]

EXTENDED = ("minutes", "trials", "fairness")  # settings that may change when a run goes on
RESULT, PROGRESS, EXPLANATION, STOP = "leaderboard.json", "progress.json", "explanation.json", "stop"


@dataclass(frozen=True)
class ModelTrial:
    """One set of parameters of a family, judged by all folds (completed), by some (pruned), or not (failed)."""

    number: int
    family: str
    params: dict[str, Any]
    state: str
    loss: float | None = None
    fold_losses: tuple[float, ...] = ()
    rounds: int | None = None
    seconds: float = 0.0
    fit_s: float = 0.0  # of one fold, which may have run beside others
    why: str = ""
    predicted: Array | None = field(default=None, compare=False, repr=False)  # of the rows that folds judge

    @property
    def name(self) -> str:
        return f"{self.family} {self.number}"


def finite(told: Any) -> Any:
    """Return data as JSON can hold it: numbers that are not finite become null."""
    match told:
        case dict():
            return {name: finite(value) for name, value in told.items()}
        case list() | tuple():
            return [finite(value) for value in told]
        case float():
            return float(told) if math.isfinite(told) else None
    return told


def fingerprint(table: RawTable) -> str:
    """Return a hash of all values of a table, and of the names and kinds of its columns."""
    made = hashlib.sha256()
    for name, column in table.columns.items():
        made.update(f"{name}\0{column.kind}\0{len(table)}\0".encode())
        if column.kind == "text":
            made.update("\0".join(column.values.tolist()).encode("utf-8", "surrogatepass"))
        else:
            made.update(np.ascontiguousarray(column.values).tobytes())
    return made.hexdigest()


class RunFolder:
    """Files of one run; one process at a time may have it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def held(self, config: AutoConfig, print_of_table: str) -> Iterator[RunFolder]:
        """Make the folder, or take the run that is in it; refuse one of another table or of other settings."""
        settings = {name: value for name, value in asdict(config).items() if name not in EXTENDED}
        wanted = json.loads(json.dumps({"settings": settings, "table": print_of_table}))
        self._check(wanted)
        try:
            (self.path / "trials").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(
                f"--out must be a folder that can be written, got {self.path} ({error.strerror}); choose another"
            ) from None
        handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UsageError(
                    f"--out must be a folder that nobody works in, got {self.path}, where another run goes on; "
                    "wait for it or choose another"
                ) from None
            write_whole(self.path / "run.json", json.dumps(wanted, indent=2))
            yield self
        finally:
            os.close(handle)

    def _check(self, wanted: dict[str, Any]) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"--out must be a folder, got the file {self.path}; choose another")
        if not (self.path / "run.json").exists():
            if self.path.is_dir() and any(one.name != ".lock" for one in self.path.iterdir()):
                if {one.name for one in self.path.iterdir()} <= {".lock", "trials"}:
                    return
                raise UsageError(
                    f"--out must be a new folder or that of a run, got {self.path} with other files; choose another"
                )
            return
        old = json.loads((self.path / "run.json").read_text())
        if old["table"] != wanted["table"]:
            raise UsageError(
                f"--out must be the folder of a run of this table, got one of another in {self.path}; choose another"
            )
        changed = [
            name for name in wanted["settings"] if old["settings"].get(name) != wanted["settings"][name]
        ]
        if changed:
            raise UsageError(
                f"--out must be the folder of a run with the same {changed[0]}, got "
                f"{old['settings'].get(changed[0])!r} in {self.path}; choose another folder for a new run"
            )

    def search_rows(self, wanted: int) -> int:
        """Return how many rows the search of this run looks at: what it began with, or else `wanted`, which is kept."""
        path = self.path / "search.json"
        if not path.exists():
            write_whole(path, json.dumps({"rows": wanted}))
        return int(json.loads(path.read_text())["rows"])

    def trials(self) -> list[ModelTrial]:
        """Return the finished trials by number."""
        found = []
        for path in sorted((self.path / "trials").glob("[0-9]*.json")):
            kept = json.loads(path.read_text())
            kept["fold_losses"] = tuple(kept["fold_losses"])
            values = path.with_suffix(".npy")
            predicted = np.load(values) if kept["state"] == "completed" else None
            found.append(ModelTrial(**kept, predicted=predicted))
        return found

    def keep(self, trial: ModelTrial) -> None:
        """Write a finished trial; its predictions first, since its record says that they are there."""
        stem = self.path / "trials" / f"{trial.number:04d}"
        if trial.predicted is not None:
            content = io.BytesIO()
            np.save(content, trial.predicted)
            write_whole(stem.with_suffix(".npy"), content.getvalue())
        told = asdict(trial)
        del told["predicted"]
        write_whole(stem.with_suffix(".json"), json.dumps(told))

    def result(self) -> dict[str, Any] | None:
        path = self.path / RESULT
        return json.loads(path.read_text()) if path.exists() else None

    def tell(self, name: str, told: dict[str, Any]) -> None:
        """Write a file that others may read while the run goes on."""
        write_whole(self.path / name, json.dumps(finite(told)))

    def asked_to_stop(self) -> bool:
        """Return whether somebody has made the file that ends the search."""
        return (self.path / STOP).exists()

    def forget_stop(self) -> None:
        """Remove the file that ends the search, so that the finished run can be extended."""
        (self.path / STOP).unlink(missing_ok=True)
