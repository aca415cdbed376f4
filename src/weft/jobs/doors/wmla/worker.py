"""A worker of WMLA: it sets the variables that scripts of WMLA expect, and becomes the script.

python -m weft.jobs.doors.wmla.worker train.py --epochs 3
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def worker_variables(environ: Mapping[str, str], main: Path) -> dict[str, str]:
    """Return the variables of a script: where its data is, and where its results go."""
    outputs = environ.get("WEFT_OUTPUTS", str(Path.cwd()))
    here = {"DATA_DIR": environ.get("WEFT_DATA_DATA", str(Path.cwd())), "RESULT_DIR": outputs}
    here["CHECKPOINT_DIR"] = environ.get("WEFT_CHECKPOINT", outputs)
    here["LOG_DIR"] = outputs
    # Modules beside the script are found, as they are where the script is the program.
    search = [str(main.parent), environ.get("PYTHONPATH", "")]
    return here | {"PYTHONPATH": os.pathsep.join(filter(None, search))}


def main(args: Sequence[str]) -> None:
    """Become the script, in the same process."""
    if not args:
        raise SystemExit("a worker must be given a script, got none")
    script = Path.cwd() / args[0]
    env = {**os.environ, **worker_variables(os.environ, script)}
    os.execve(sys.executable, [sys.executable, str(script), *args[1:]], env)


if __name__ == "__main__":
    main(sys.argv[1:])
