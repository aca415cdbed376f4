"""The environment of a job: versions of Python, the system and all packages, written down when an attempt starts."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from weft.files import write_whole

FILE = "environment.json"  # in the folder of an attempt


@cache
def installed() -> dict[str, str]:
    """Return the versions of everything that this Python has; read once in a process."""
    found = {"python": platform.python_version(), "system": platform.platform()}
    for one in distributions():
        name = one.metadata["Name"]
        if name:
            found[str(name).lower()] = one.version
    return dict(sorted(found.items()))


def record_environment(folder: Path) -> None:
    """Write down the environment in the folder of an attempt."""
    write_whole(folder / FILE, msgspec.json.encode(installed()))


def read_environment(folder: Path) -> dict[str, str]:
    """Return what was written down; nothing for an attempt that never began."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}
