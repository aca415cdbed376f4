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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import UsageError, WeftError
from weft.jobs.auto.runs import RUN_FOLDER

if TYPE_CHECKING:
    from weft.auto.running import AutoProgress

RESULTS = ("model.onnx", "report.html", "report.pdf", "leaderboard.json", "explanation.json", "model.pkl")


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """Do what a request asks for; 2 if it cannot be understood."""
    try:
        (path,) = words
        request = json.loads(Path(path).read_text())
        checkpoints, outputs = Path(environ["WEFT_CHECKPOINT"]), Path(environ["WEFT_OUTPUTS"])
        data = Path(environ["WEFT_DATA_TABLE"]) if not request["uploaded"] else None
    except (ValueError, OSError, KeyError) as error:
        print(
            f"weft: a worker must have a request, its data, checkpoints and outputs, got: {error!r}",
            file=sys.stderr,
        )
        return 2
    try:
        table = Path(request["file"]) if data is None else table_in(data, request["file"])
        carry_out(table, request["config"], checkpoints / RUN_FOLDER, outputs)
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


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
