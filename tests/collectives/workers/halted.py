"""Ranks that stop or die just after the memory they share was made, before its file has lost its name."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

from weft.collectives.modes.shared_memory import arena, files

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends everyone after the first death
how, rank = sys.argv[1], int(os.environ["RANK"])
files.sweep()
if how != "halt":
    Path(sys.argv[2], f"up-{rank}").touch()


def halt(*_: object) -> None:
    print("up", os.getpid(), flush=True)
    signal.pause()


def die(*_: object) -> int:
    while len(list(Path(sys.argv[2]).glob("up-*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)  # who is not up yet would be ended with this one, before it could be told
    os.kill(os.getpid(), signal.SIGKILL)
    return -1


if how == "halt":
    arena.unlink = halt  # type: ignore[assignment]
elif how == "maker-dies" and rank == 0:
    arena.create = die  # type: ignore[assignment]
elif how == "peer-dies" and rank == 1:
    arena.attach = die  # type: ignore[assignment]
began = time.monotonic()
try:
    dist.init_process_group("weft", timeout=timedelta(seconds=30))
except RuntimeError as error:
    took = time.monotonic() - began
    left = [path.name for path in Path("/dev/shm").glob(f"{files.PREFIX}{os.getpid()}-*")]
    print(f"told {type(error).__name__} after {took:.1f} s: {error} | left {left}", flush=True)
    sys.exit(3)
signal.pause()
