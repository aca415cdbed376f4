"""A learner: the process that a worker of an FfDL training runs. It sets FfDL's variables and runs the command.

python -m weft.jobs.doors.ffdl.learner --gpus 1.0 -- "python3 train.py --data ${DATA_DIR}"

The output goes on as it comes, and also to RESULT_DIR/learner-N/training-log.txt. Scripts that hard-code /job see the
folder JOB_STATE_DIR there, in a mount of their own; where the system does not allow that, they are told.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from weft.jobs.doors.ffdl.mounting import MountError, enter_with
from weft.jobs.doors.ffdl.variables import STATE_FOLDER, learner_variables

PLACE = "/job"
_CHUNK_BYTES = 1 << 16


def main(args: Sequence[str]) -> int:
    """Run the command of a learner; return its exit code."""
    gpus, command, placed = _parse(args)
    cwd = Path.cwd()
    variables = learner_variables(os.environ, command=command, gpus=gpus, model_dir=PurePosixPath(cwd))
    for name in ("RESULT_DIR", "CHECKPOINT_DIR", "LOG_DIR", "JOB_STATE_DIR"):
        Path(variables[name]).mkdir(parents=True, exist_ok=True)
    log = Path(variables["RESULT_DIR"]) / f"learner-{variables['LEARNER_ID']}" / "training-log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    if variables["LEARNER_ID"] == "1":
        _keep_code(cwd, Path(variables["RESULT_DIR"]) / "_submitted_code")
    state = Path(variables["JOB_STATE_DIR"]) if placed and not Path(PLACE).exists() else None
    return _run(command, {**os.environ, **variables}, state, log)


def _parse(args: Sequence[str]) -> tuple[float, str, bool]:
    words = list(args)
    placed = words[:1] == ["--with-job-folder"]
    match words[1:] if placed else words:
        case ["--gpus", gpus, "--", command]:
            return float(gpus), command, placed
    raise SystemExit(
        f"a learner must be given [--with-job-folder] --gpus N -- COMMAND, got {' '.join(args)!r}"
    )


def _keep_code(folder: Path, target: Path) -> None:
    """Keep the code beside the results, as FfDL does."""
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target / "model.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            if path.is_file() and inside.parts[0] not in (STATE_FOLDER, "outputs"):
                archive.write(path, str(inside))


def _run(command: str, env: Mapping[str, str], state: Path | None, log: Path) -> int:
    """Run a command in a shell, with its output on ours and in a file; it sees the folder `state` as /job."""

    def enter() -> None:
        assert state is not None
        try:
            enter_with(PLACE, state, root)
        except (MountError, OSError) as error:
            # Only a script that names /job minds; it finds the reason right before its own error.
            os.write(2, f"weft: {PLACE} is not there ({error}); scripts must use $JOB_STATE_DIR\n".encode())

    root = Path(tempfile.mkdtemp(prefix="weft-root-"))
    with log.open("ab", buffering=0) as copy:
        child = subprocess.Popen(
            ["/bin/sh", "-c", command],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            preexec_fn=enter if state is not None else None,  # safe: this process has one thread
        )
        root.rmdir()  # the command has begun, and keeps its own view of it
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _forward_to(child))
        assert child.stdout is not None, "it is a pipe"
        while data := os.read(child.stdout.fileno(), _CHUNK_BYTES):
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
            copy.write(data)
        code = child.wait()
    return code if code >= 0 else 128 - code


def _forward_to(child: subprocess.Popen[bytes]) -> Any:
    def forward(number: int, frame: object) -> None:
        child.send_signal(number)

    return forward


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
