"""The command `horovodrun`."""

from __future__ import annotations

import sys


def run_commandline(argv: list[str] | None = None) -> None:
    """Do what `horovodrun` was called with, by `weft run`."""
    from weft.cli import call
    from weft.compat.horovod.launcher.command import main

    sys.exit(main(sys.argv[1:] if argv is None else argv, call))


if __name__ == "__main__":
    run_commandline()
