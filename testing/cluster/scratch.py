"""Temporary folders that say whose they are, so that a later run can clear away those of a dead one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path


def new_folder() -> Path:
    sweep()
    return Path(tempfile.mkdtemp(prefix=f"weft-cluster-{os.getpid()}-"))


def sweep() -> None:
    """Remove the folders of runs that are no more; processes and namespaces have gone with them already."""
    for folder in Path(tempfile.gettempdir()).glob("weft-cluster-*"):
        owner = re.match(r"weft-cluster-(\d+)-", folder.name)
        if owner and not Path("/proc", owner[1]).exists():
            shutil.rmtree(folder, ignore_errors=True)  # another run may be sweeping too
