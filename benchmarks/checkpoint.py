"""How long training waits for a checkpoint: ours against torch.save in the loop and torch's own asynchronous one.

    python benchmarks/checkpoint.py                     256 MiB, 2 processes
    python benchmarks/checkpoint.py --mib 1024 --processes 4 --rounds 5
    python benchmarks/checkpoint.py --json

All processes hold the same state, a model and its AdamW, as in data parallel training. A way's blocking time is that of
the slowest process, from the call to where training goes on; `on disk` is when the last byte is there. The ways take
turns, each waits until the one before is done, and the first round, in which memory is found, is shown by itself.
With torch.save the first process saves, and the others wait for it. async_save runs as it comes, and with a stager
that keeps its memory, pinned for a GPU. Files are flushed to disk in every way.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims

from weft.elastic.checkpoint import layout
from weft.elastic.checkpoint.saver import Saver
from weft.elastic.membership.view import Member, View
from weft.elastic.replica import state
from weft.elastic.worker.link import FixedLink
from weft.elastic.worker.messages import FromWorker

WIDTH = 1024
OURS = "weft"
Way = Callable[[Path], Callable[[], object]]  # saves; gives what waits until it is on disk


def objects_of(mib: int, device: str) -> dict[str, Any]:
    """A model and its optimizer, which has two more tensors for each of the model's."""
    layers = max(1, round(mib * 2**20 / (3 * 4 * WIDTH * (WIDTH + 1))))
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers))).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {"model": model, "optimizer": optimizer}


class Silent(FixedLink):
    def tell(self, news: FromWorker) -> None:
        pass


class Ours:
    """What a member of an elastic run does at a commit."""

    def __init__(self, objects: dict[str, Any], folder: Path, rank: int, size: int) -> None:
        members = tuple(Member(f"here/{slot}.0", "here", "here", slot, "", 0, 0) for slot in range(size))
        self._objects, self._rank, self._view = objects, rank, View(0, members, ())
        self._saver = Saver(Silent(self._view, rank), "benchmark")
        self._saver.configure(folder, 1)
        self._saver.meet([self._saver.card(objects, {}, stays=True)] * size)
        self._step = 0

    def __call__(self, _: Path) -> Callable[[], object]:
        self._step += 1
        self._saver.voted(1.0, 0.0)
        position = (self._step, 0, 0)
        self._saver.committed(
            self._view,
            self._rank,
            position,
            lambda: state.image_of(self._objects, {"position": position}, on_host=False),
        )
        return lambda: self._saver.close(self._view, self._rank, position, lambda: state.StateImage(b"", ()))


def ways(objects: dict[str, Any], folder: Path, rank: int, size: int) -> dict[str, Way]:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
    from torch.distributed.checkpoint.state_dict_saver import async_save

    def states() -> dict[str, Any]:
        return {name: value.state_dict() for name, value in objects.items()}

    def plain(place: Path) -> Callable[[], object]:
        if rank == 0:
            with place.open("wb") as file:
                torch.save(states(), file)
                file.flush()
                os.fsync(file.fileno())
        dist.barrier()
        return lambda: None

    on_gpu = next(objects["model"].parameters()).is_cuda
    kept = DefaultStager(StagingOptions(on_gpu, False, False, on_gpu))

    def torchs(place: Path, stager: Any = None) -> Callable[[], object]:
        saving: Any = async_save(states(), storage_writer=FileSystemWriter(place), async_stager=stager)
        return lambda: saving.result()

    return {
        OURS: Ours(objects, folder / "ours", rank, size),
        "torch.save": plain,
        "async_save": torchs,
        "async_save, memory kept": lambda place: torchs(place, kept),
    }


def work(rank: int, size: int, mib: int, rounds: int, device: str, folder: Path, results: Any) -> None:
    """One process."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    objects = objects_of(mib, device)
    all_ways = ways(objects, folder, rank, size)
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        for name, save in in_turn(all_ways, number):
            place = folder / f"{name.replace(' ', '-')}-{number}"
            dist.barrier()
            if device != "cpu":
                torch.cuda.synchronize()
            began = time.perf_counter()
            try:
                wait = save(place)
            except (
                KeyError,
                RuntimeError,
            ) as error:  # torch 2.11's stager with Python 3.12; on all processes alike
                print(f"{name} is left out: {error!r}", flush=True) if rank == 0 else None
                del all_ways[name]
                found.pop(name, None)
                continue
            blocked_s = time.perf_counter() - began
            wait()
            dist.barrier()
            times = torch.tensor([blocked_s, time.perf_counter() - began])
            dist.all_reduce(times, dist.ReduceOp.MAX)
            found.setdefault(name, []).append((times[0].item(), times[1].item()))
            if rank == 0:
                shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(missing_ok=True)
    if rank == 0:
        nbytes = state.image_of(objects).nbytes
        assert layout.find(folder / "ours"), "ours must be whole"
        results.put((nbytes, found))
    dist.barrier()
    dist.destroy_process_group()


def in_turn(all_ways: dict[str, Way], number: int) -> list[tuple[str, Way]]:
    """Another one first in each round."""
    rows = list(all_ways.items())
    first = number % len(rows)
    return rows[first:] + rows[:first]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=256, help="of state")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="where the state is")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary one")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        args = (options.processes, options.mib, options.rounds, options.device, Path(name), results)
        processes = [context.Process(target=work, args=(rank, *args)) for rank in range(options.processes)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            return 1
        nbytes, found = results.get()
    rows = {
        name: {
            "first_s": times[0][0],
            "blocking_s": median(blocked for blocked, _ in times[1:]),
            "on_disk_s": median(done for _, done in times[1:]),
        }
        for name, times in found.items()
    }
    if options.json:
        print(json.dumps({"bytes": nbytes, "processes": options.processes, "ways": rows}, indent=2))
        return 0
    print(
        f"{nbytes / 2**20:.0f} MiB of state, {options.processes} processes, median of {options.rounds} rounds"
    )
    print(f"{'':24}  {'blocking':>9}  {'first':>9}  {'on disk':>9}  blocking / {OURS}'s")
    ours = rows[OURS]["blocking_s"]
    for way, row in rows.items():
        cells = "  ".join(f"{1e3 * row[name]:6.0f} ms" for name in ("blocking_s", "first_s", "on_disk_s"))
        print(f"{way:24}  {cells}  {row['blocking_s'] / ours:8.1f}")
    names = {"torch.save": "save", "async_save": "async", "async_save, memory kept": "async-kept"}
    measured = {names[way]: row["blocking_s"] / ours for way, row in rows.items() if way in names}
    print("\n" + claims.report("checkpoint", measured), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
