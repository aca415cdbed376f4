"""The worker of a run of `weft.auto`: `python -m weft.jobs.auto.worker request.json`.

The run is kept among the job's checkpoints, so that an attempt goes on where the one before was killed; its results are
copied to the outputs.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import UsageError
from weft.jobs.auto.runs import RUN_FOLDER
from weft.jobs.workers import exit_code_of, request_of

if TYPE_CHECKING:
    from weft.auto.running import AutoProgress

RESULTS = ("model.onnx", "report.html", "report.pdf", "leaderboard.json", "explanation.json", "model.pkl")


@dataclass(frozen=True)
class TableRequest:
    """The request of a run, with the folders that the service names."""

    table: Path
    config: Mapping[str, Any]
    checkpoints: Path
    outputs: Path


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what a request asks for; 2 if it cannot be understood."""
    return exit_code_of(lambda: _work(words, environ))


def _work(words: Sequence[str], environ: Mapping[str, str]) -> None:
    must = "a request, its data, checkpoints and outputs"
    asked = request_of(lambda: _request(words, environ), must)
    carry_out(asked.table, asked.config, asked.checkpoints / RUN_FOLDER, asked.outputs)


def _request(words: Sequence[str], environ: Mapping[str, str]) -> TableRequest:
    (path,) = words
    data = json.loads(Path(path).read_text())
    folders = Path(environ["WEFT_CHECKPOINT"]), Path(environ["WEFT_OUTPUTS"])
    file = data["file"]
    table = Path(file) if data["uploaded"] else table_in(Path(environ["WEFT_DATA_TABLE"]), file)
    return TableRequest(table, data["config"], *folders)


def table_in(data: Path, file: str) -> Path:
    """Return a table of a data set: the file that is named, or the only one that there is."""
    from weft.auto.reading.files import FILES

    if data.is_file():
        return data
    if file:
        return data / file
    found = sorted(path for path in data.rglob("*") if path.suffix.lower() in FILES)
    if len(found) != 1:
        raise UsageError(f"a data set must have one table, got {len(found)} in {data}; name its file")
    return found[0]


def carry_out(table: Path, config: Mapping[str, Any], folder: Path, outputs: Path) -> None:
    """Run, and copy the results to the outputs."""
    from weft.auto.config import AutoConfig
    from weft.auto.results import write_results
    from weft.auto.running import run

    lists = {name: tuple(config.get(name, ())) for name in ("fairness", "drop", "models")}
    model = run(str(table), AutoConfig(**{**config, **lists}), folder, tell)
    for note in (*model.notes, *write_results(model, folder, str(table), pdf=True)):
        print(note)
    for name in RESULTS:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, outputs / name)


def tell(progress: AutoProgress) -> None:
    """Report how far a run is, and the best score so far."""
    import weft

    weft.report(min(1.0, progress.spent_s / progress.budget_s), progress.doing)
    best = progress.board[0] if progress.board else None
    if best is not None and best.name != "baseline":
        weft.log({progress.metric: best.score})
        print(f"{progress.spent_s:.0f} s: {progress.doing}; best {best.name} {best.score:.5g}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
