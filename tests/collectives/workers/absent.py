"""A rank that does not come to where the others wait for it; each of them prints what it was told, and when."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends everyone after the first death
torch.set_num_threads(1)
how, timeout = sys.argv[1], timedelta(seconds=float(sys.argv[2]))
rank = int(os.environ["RANK"])
absent = rank == int(sys.argv[3])
began = time.monotonic()


def meet() -> None:
    if how == "init":
        if not absent:
            dist.init_process_group("weft", timeout=timeout)
        return
    dist.init_process_group("weft", timeout=timedelta(seconds=60))
    dist.barrier()
    if absent and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    global began
    began = time.monotonic()
    if not absent:
        dist.new_group([2, 1], timeout=timeout)


try:
    meet()
except RuntimeError as error:
    took = time.monotonic() - began
    print(f"told {type(error).__name__} after {took:.1f} s: {error}", flush=True)
    sys.exit(3)
print("gone on", flush=True)
signal.pause()
