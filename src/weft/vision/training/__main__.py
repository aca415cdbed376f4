"""`python -m weft.vision.training CONFIG [FOLDER]`: a training as a script, for `weft run` and for jobs.

python -m weft.vision.training flowers.yaml flowers-model
weft run -n 2 -m weft.vision.training flowers.yaml flowers-model
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import UsageError


def main(arguments: Sequence[str] | None = None) -> int:
    """Train what a configuration file says; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m weft.vision.training", description=__doc__)
    parser.add_argument("config", type=Path, help="a YAML, TOML or JSON file")
    parser.add_argument(
        "folder", type=Path, nargs="?", help="where the model goes (a folder `model` of the run)"
    )
    parser.add_argument("--library", type=Path, help="the folder of data sets (the user's own)")
    parser.add_argument("--json", action="store_true", help="print the results as data")
    options = parser.parse_args(arguments)
    try:
        results = train_file(options.config, options.folder, options.library)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if "metrics" in results:  # of the worker that wrote the model
        print(json.dumps(results) if options.json else summary(results))
    return 0


def train_file(
    config_file: Path, folder: Path | None = None, library: Path | None = None
) -> Mapping[str, Any]:
    """Train what a file says and return the results."""
    from weft.vision.config import read_config
    from weft.vision.opening import open_data
    from weft.vision.training.run import data_version, job_report, train

    config = read_config(config_file)
    version = data_version(config, lambda text: open_data(text, library))
    target = folder or Path(os.environ.get("WEFT_RUN_DIR", ".")) / "model"

    def report(values: Mapping[str, Any]) -> None:
        job_report(values)
        print(progress_line(values), file=sys.stderr, flush=True)

    return train(config, version, target, report=report).results


def progress_line(values: Mapping[str, Any]) -> str:
    """Return the line that tells how a training is going."""
    if "total" not in values:
        figures = "  ".join(
            f"{name.removeprefix('val_')} {one:.3f}" for name, one in values.items() if "val_" in name
        )
        return f"step {values['step']}  {figures}"
    left_s = values.get("left_s")  # None: nobody can say, as in a custom training
    line = f"step {values['step']}/{values['total']}  epoch {values['epoch']:.1f}  loss {values['loss']:.3f}"
    return line if left_s is None else f"{line}  {left_s:.0f} s left"


def summary(results: Mapping[str, Any]) -> str:
    """Return the results in a few lines."""
    metrics = results.get("metrics") or {}
    lines = [f"{name:<14} {value:.4f}" for name, value in metrics.items()]
    if "split" in results:
        lines.append(f"{'judged on':<14} {results['pictures']['test']} pictures ({results['split']})")
    if "training_s" in results:
        lines.append(f"{'training':<14} {results['epochs']:.1f} epochs, {results['training_s']:.1f} s")
    if results.get("stopped"):
        lines.append(f"{'stopped':<14} {results['stopped']}")
    reason = (results.get("export") or {}).get("reason")
    if reason:
        lines.append(f"{'no ONNX file':<14} {reason}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
