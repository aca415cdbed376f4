"""Several groups at once, each used by a thread of its own."""

from __future__ import annotations

import threading

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("weft")
size = dist.get_world_size()
groups = [dist.new_group() for _ in range(3)]
done = [0] * len(groups)


def work(number: int) -> None:
    for turn in range(30):
        values = torch.full((1 + 40_000 * (turn % 3),), float(number + turn))
        dist.all_reduce(values, group=groups[number])
        assert bool((values == size * (number + turn)).all())
        done[number] += 1


threads = [threading.Thread(target=work, args=(number,)) for number in range(len(groups))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert done == [30] * len(groups), done
dist.barrier()
dist.destroy_process_group()
