"""The run directory: the plan, every rank's log, and the outcome, kept together."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from weft.errors import UsageError
from weft.files import write_whole
from weft.launch.control.outcome import Outcome
from weft.launch.plan import LaunchPlan
from weft.topology.rankfile import render

HOME = Path("weft-runs")
PARALLEL_PLAN = "parallel.json"  # how the model is shared between hosts, where a plan says so
PRIVATE = 0o700  # the mode of a run's folder: what workers print may be for their user alone


@dataclass(frozen=True)
class RunDir:
    """A folder of its own for one run."""

    path: Path

    @classmethod
    def create(
        cls, chosen: Path | None, plan: LaunchPlan, now: datetime, parallel_plan: str | None = None
    ) -> RunDir:
        """Make the folder, the chosen one or a new one under `weft-runs/`, with the plan in it."""
        try:
            folder = _take(chosen) if chosen is not None else _new_folder(f"{now:%Y%m%d-%H%M%S}-{plan.name}")
            made = cls(folder)
            try:
                made._write_plan(plan)
                if parallel_plan is not None:
                    write_whole(folder / PARALLEL_PLAN, parallel_plan)
            except OSError:
                if not any(folder.iterdir()):
                    folder.rmdir()
                raise
        except OSError as error:
            where = chosen or HOME.absolute()
            raise UsageError(
                f"the run directory must be writable, got {where}: {error.strerror}; use --run-dir"
            ) from error
        return made

    def _write_plan(self, plan: LaunchPlan) -> None:
        if plan.rankfile is not None:
            write_whole(self.path / "RANKFILE", render(plan.rankfile))
        write_whole(self.path / "plan.json", _json(plan.to_json()))

    def write_outcome(self, outcome: Outcome) -> None:
        write_whole(self.path / "outcome.json", _json(outcome.to_json()))


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"


def _take(chosen: Path) -> Path:
    chosen.mkdir(PRIVATE, parents=True, exist_ok=True)
    if (chosen / "plan.json").exists():
        raise UsageError(f"--run-dir must be new, got {chosen} which holds a run; name another")
    return chosen


def _new_folder(name: str) -> Path:
    """Make the folder of a run, under another name if one of the same second has it."""
    HOME.mkdir(exist_ok=True)
    ignore = HOME / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    for suffix in ("", *(f"-{n}" for n in range(2, 1000))):
        try:
            (HOME / (name + suffix)).mkdir(PRIVATE)
        except FileExistsError:
            continue
        return HOME / (name + suffix)
    raise FileExistsError(17, "too many runs in one second", str(HOME / name))


def find_run(text: str) -> Path:
    """The run directory someone means: a path, the name of one under `weft-runs/`, or `latest`, the newest there."""
    known = (
        sorted((path for path in HOME.glob("[!.]*") if path.is_dir()), key=_started) if HOME.is_dir() else []
    )
    if text == "latest" and known:
        return known[-1]
    if text and text != "latest":
        for path in (Path(text), HOME / text):
            if path.is_dir():
                return path
    newest = ", ".join(path.name for path in reversed(known[-5:]))
    more = f" and {len(known) - 5} older" if len(known) > 5 else ""
    there = f"holds {newest}{more}" if known else "holds none"
    raise UsageError(f"RUN must be a run directory or `latest`, got {text!r}; {HOME.absolute()} {there}")


def _started(folder: Path) -> tuple[int, str]:
    """Return when its plan was written: names of the user's own choice tell no time."""
    plan = folder / "plan.json"
    return (plan if plan.exists() else folder).stat().st_mtime_ns, folder.name
