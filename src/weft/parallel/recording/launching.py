"""Starts one worker that records a script, here or on a host, on the cores that it will have in the run."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, replace
from pathlib import Path

from weft.documents import fill_model
from weft.errors import UsageError
from weft.launch import run as launch
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.launch.environment import RECORDING_VARIABLE
from weft.parallel.prediction.step import RecordedStep
from weft.topology.hostlist import HostEntry

MARK = "weft-step "  # as recording/script.py writes it


def recording_launch(
    script: str, arguments: Sequence[str], host: HostEntry | None, workers: int = 1
) -> LaunchConfig:
    """Return the launch that records a script, on the first host of the plan or on this machine.

    As many workers are placed as the host will have; the first one records on its share of the cores, alone.
    """
    if not Path(script).is_file():
        raise UsageError(f"SCRIPT must be a file, got {script}, which is not there; check the path")
    return LaunchConfig(
        command=Command("module", "weft.parallel.recording.script", (script, *arguments)),
        hosts=(replace(host, workers=workers),) if host is not None else (),
        workers=workers if host is None else None,
        env=((RECORDING_VARIABLE, "1"),),
        skip_checks=True,
    )


def record_script(
    script: str, arguments: Sequence[str] = (), host: HostEntry | None = None, workers: int = 1
) -> RecordedStep:
    """Run a script until a few steps of one of the workers of a host are recorded."""
    config = recording_launch(script, arguments, host, workers)
    with tempfile.TemporaryDirectory(prefix="weft-plan-") as folder:
        run_dir = Path(folder) / "run"
        with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
            outcome = launch.run(replace(config, run_dir=run_dir))
        log = run_dir / "rank-0.log"
        lines = log.read_text().splitlines() if log.is_file() else []
    found = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    if found:
        return fill_model(json.loads(found[-1]), RecordedStep, Path(script))
    last = next((line for line in reversed(lines) if line.strip()), "no output")
    why = (
        f"it failed: {last}"
        if not outcome.ok
        else "no optimizer step after the first, or no module that trains"
    )
    raise UsageError(f"{script} must train for two steps to be recorded, got {why}; mend it, or use --model")


def step_text(record: RecordedStep) -> str:
    """Return a recorded step as the text of a file."""
    return json.dumps({"step": asdict(record)}, indent=2) + "\n"
