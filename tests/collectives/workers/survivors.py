"""A rank dies; the others let go of the group, make a new world among themselves, and leave nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from weft.collectives.groups import roll

signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the launcher ends everyone after the first death
torch.set_num_threads(1)
victim, folder = int(sys.argv[1]), Path(sys.argv[2])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = os.environ["MASTER_ADDR"]


def what_we_hold() -> Counter[str]:
    """Threads, and descriptors by kind."""
    gc.collect()
    kinds = Counter(f"thread {thread.name.rstrip('0123456789')}" for thread in threading.enumerate())
    for link in Path("/proc/self/fd").iterdir():
        try:
            kinds[str(link.readlink()).partition(":[")[0]] += 1
        except OSError:
            continue  # the one we look through
    return kinds


def new_world(name: str, ours: int, count: int) -> None:
    """A world with a store of its own, whose port its first rank writes down."""
    note = folder / name
    timeout = timedelta(seconds=30)
    if ours == 0:
        store = TCPStore(address, 0, count, is_master=True, timeout=timeout, wait_for_workers=False)
        note.with_suffix(".new").write_text(str(store.port))
        note.with_suffix(".new").rename(note)
    else:
        while not note.exists():
            time.sleep(0.01)
        store = TCPStore(address, int(note.read_text()), count, is_master=False, timeout=timeout)
    dist.init_process_group("weft", store=store, rank=ours, world_size=count, timeout=timeout)


def sum_of_ones(*shape: int) -> float:
    values = torch.ones(*shape)
    dist.all_reduce(values)
    return float(values.flatten()[-1])


new_world("first", rank, size)
assert sum_of_ones(500, 500) == size
dist.barrier()
dist.destroy_process_group()
roll.forget_store()
before = what_we_hold()

new_world("second", rank, size)
assert sum_of_ones(500, 500) == size
if rank == victim:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    sum_of_ones(500, 500)
    raise SystemExit("the rank that died must be missed")
except dist.DistError as error:
    raise SystemExit(f"must be ours, got {error}") from error
except RuntimeError as error:
    print(f"told {error}", flush=True)
assert dist.group.WORLD is not None
dist.group.WORLD.abort()
dist.destroy_process_group()

others = [each for each in range(size) if each != victim]
new_world("third", others.index(rank), len(others))
for turn in range(20):
    assert sum_of_ones(100, 1 + 100 * turn) == len(others)
dist.barrier()
dist.destroy_process_group()
roll.forget_store()
left = what_we_hold() - before
print(f"went on, left {dict(left)}", flush=True)
