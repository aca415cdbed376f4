"""A worker of a trial of WMLA's search: it hands the parameters to the script, and reports what the script found.

python -m weft.jobs.doors.wmla.trial lr=0.1 train.py --data x

Scripts of WMLA read their parameters from `config.json` in their folder and write their metrics as a list to
`val_dict_list.json` in RESULT_DIR, an entry for each look, at the latest when they end. Words of the form NAME=VALUE
before the script are the parameters as people read them; their values with types come from the study.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.jobs.doors.wmla.worker import worker_variables

METRICS = "val_dict_list.json"
STEP_NAMES = ("steps", "step", "epoch", "iteration", "iterations")
POLL_S = 1.0  # between looks for metrics while the script runs


def split_words(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Return the parameters before the script, and the script with its own words."""
    given: dict[str, str] = {}
    rest = list(words)
    while rest and "=" in rest[0] and not rest[0].endswith(".py"):
        name, _, value = rest.pop(0).partition("=")
        given[name] = value
    return given, rest


def script_parameters(given: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return what goes into config.json: typed parameters of the study, and how long to train."""
    typed: dict[str, Any] = json.loads(environ.get("WEFT_PARAMS", "{}"))
    until = environ.get("WEFT_UNTIL")
    more = {name: int(until) if until else value for name, value in given.items() if name not in typed}
    return typed | more


def new_points(path: Path, told: int) -> list[tuple[int, dict[str, float]]]:
    """Return the entries of a list of metrics from the one numbered `told` on, with their steps."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return []  # not there, or half written
    if not isinstance(found, list):
        return []
    points = []
    for number, entry in enumerate(found[told:], told + 1):
        if not isinstance(entry, dict):
            continue
        step = next((entry[name] for name in STEP_NAMES if isinstance(entry.get(name), (int, float))), number)
        values = {
            str(name): float(value)
            for name, value in entry.items()
            if name not in STEP_NAMES and isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        points.append((int(step), values))
    return points


def run(words: Sequence[str], environ: Mapping[str, str], here: Path) -> int:
    """Run the script with its parameters; report its metrics; return its exit code."""
    given, command = split_words(words)
    if not command:
        raise SystemExit("a trial must be given a script, got none")
    script = here / command[0]
    variables = {**environ, **worker_variables(environ, script)}
    results = Path(variables["RESULT_DIR"])
    (results / METRICS).unlink(missing_ok=True)  # of a part of this trial that ended before
    text = json.dumps(script_parameters(given, environ), indent=2)
    for folder in {here, script.parent}:
        (folder / "config.json").write_text(text)
    variables |= old_result_folder(results, variables)
    process = subprocess.Popen([sys.executable, str(script), *command[1:]], env=variables)
    signal.signal(signal.SIGTERM, lambda *_: process.terminate())  # whoever ends us means the script
    reported = 0
    while True:
        try:
            process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            reported += report(new_points(results / METRICS, reported), environ)
            continue
        report(new_points(results / METRICS, reported), environ)
        return process.returncode if process.returncode >= 0 else 128 - process.returncode


def old_result_folder(results: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of scripts that put their results into DLI_RESULT_FS/USER/batchworkdir/DLI_EXECID."""
    user, execution = environ.get("USER", "weft"), f"trial-{environ.get('WEFT_TRIAL', '0')}"
    link = results.parent / "dli" / user / "batchworkdir" / execution
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(results, target_is_directory=True)
    return {"DLI_RESULT_FS": str(results.parent / "dli"), "USER": user, "DLI_EXECID": execution}


def report(points: Sequence[tuple[int, Mapping[str, float]]], environ: Mapping[str, str]) -> int:
    """Report points, from the first worker alone; return how many there were."""
    if environ.get("RANK", "0") == "0":
        import weft

        for step, values in points:
            weft.log(values, step=step)
    return len(points)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], os.environ, Path.cwd()))
