"""The command `horovodrun`."""

from __future__ import annotations

import sys
from typing import Any

from horovod.common.util import gloo_built, mpi_built
from weft.compat.horovod.launcher.arguments import parse_args, run_arguments

__all__ = ["gloo_built", "mpi_built", "parse_args", "run_commandline"]


def run_commandline(argv: list[str] | None = None) -> None:
    """Do what `horovodrun` was called with, by `weft run`."""
    from weft.cli import call
    from weft.compat.horovod.launcher.command import main

    sys.exit(main(sys.argv[1:] if argv is None else argv, call))


def _run(args: Any) -> Any:
    """Run what arguments say: the function in them, whose results are returned, or a command."""
    return run_arguments(args)


_run_static = _run_elastic = _run

if __name__ == "__main__":
    run_commandline()
