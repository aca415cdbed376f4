"""Arguments of `horovodrun` as an object: parsed from a command line, or filled by a script, and carried out."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from weft.compat.horovod.errors import HorovodRunError
from weft.compat.horovod.launcher.command import translation_of
from weft.compat.horovod.launcher.flags import parse
from weft.compat.horovod.launcher.function import run_given
from weft.errors import UsageError


class HorovodArguments(argparse.Namespace):
    """All flags, by Horovod's names, as if none were given; one worker."""

    num_proc: int | None
    command: list[str] | None
    run_func: Callable[[], Any] | None
    executable: str | None
    nics: Any

    def __init__(self) -> None:
        super().__init__(**vars(parse([])))
        self.num_proc, self.command = 1, None
        self.run_func = self.executable = None


def parse_args() -> argparse.Namespace:
    """Return the flags of this process's command line; a value that cannot be is a ValueError."""
    try:
        return parse(sys.argv[1:])
    except UsageError as error:
        raise ValueError(str(error)) from None


def run_arguments(given: Any) -> Any:
    """Run the function of arguments on their workers, and return its results by rank; or their command."""
    if getattr(given, "run_func", None) is not None:
        return run_given(given, given.run_func)
    given.command = list(given.command or ())
    words = translation_of(given).args
    code = subprocess.run([sys.executable, "-P", "-m", "weft", *words], check=False).returncode
    if code:
        raise HorovodRunError(f"the command ended with the code {code}")
    return None
