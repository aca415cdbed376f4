"""Runs the scripts beside it that it is given, one after the other, in the same processes: torch is imported once."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tests.collectives.workers.contract import Contract

names = sys.argv[1:]
for place, name in enumerate(names, 1):
    Contract.others_follow = place < len(names)
    print(f"-- {name}", flush=True)
    runpy.run_path(str(Path(__file__).with_name(name)), run_name="__main__")
