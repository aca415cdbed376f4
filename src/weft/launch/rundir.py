"""The run directory: the plan, every rank's log, and the outcome, kept together."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from weft.errors import UsageError
from weft.launch.outcome import Outcome
from weft.launch.plan import Plan
from weft.topology.rankfile import render


@dataclass(frozen=True)
class RunDir:
    """A folder of its own for one run."""

    path: Path

    @classmethod
    def create(cls, chosen: Path | None, name: str, now: datetime) -> RunDir:
        """Make the folder: the chosen one, or a new one under `weft-runs/`."""
        try:
            if chosen is not None:
                chosen.mkdir(parents=True, exist_ok=True)
                if (chosen / "plan.json").exists():
                    raise UsageError(f"--run-dir must be new, got {chosen} which holds a run; name another")
                return cls(chosen)
            home = Path("weft-runs")
            home.mkdir(exist_ok=True)
            ignore = home / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            return cls(_new_folder(home, f"{now:%Y%m%d-%H%M%S}-{name}"))
        except OSError as error:
            where = chosen or Path("weft-runs").absolute()
            raise UsageError(
                f"the run directory must be writable, got {where}: {error.strerror}; use --run-dir"
            ) from error

    def write_plan(self, plan: Plan) -> None:
        self._write("plan.json", plan.to_json())
        if plan.rankfile is not None:
            (self.path / "RANKFILE").write_text(render(plan.rankfile))

    def write_outcome(self, outcome: Outcome) -> None:
        self._write("outcome.json", outcome.to_json())

    def _write(self, name: str, data: dict[str, Any]) -> None:
        # Whole or not at all: others watch this folder.
        draft = self.path / f".{name}.{os.getpid()}"
        draft.write_text(json.dumps(data, indent=2) + "\n")
        draft.replace(self.path / name)


def _new_folder(home: Path, name: str) -> Path:
    """Two runs may start in the same second."""
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        try:
            (home / (name + suffix)).mkdir()
        except FileExistsError:
            continue
        return home / (name + suffix)
    raise FileExistsError(17, "too many runs in one second", str(home / name))
