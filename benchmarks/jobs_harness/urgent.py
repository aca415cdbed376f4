"""An urgent job beside elastic ones that hold every host of a virtual cluster: from its submission to its first step.

    python benchmarks/jobs.py urgent [--rounds 5] [--hosts 2] [--torch]

Elastic runs fill the hosts, and give workers up when the urgent job comes; it is over in a moment, and they grow again
before the next round. The urgent job's first step is what its script does first; with --torch that is a step of an
optimizer, which first imports torch: the seconds of that are told apart. The moments on the way are the service's own
events of both jobs.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import claims

if TYPE_CHECKING:
    from testing.jobs.desk import Desk

ROOT = Path(__file__).resolve().parents[2]
WORKERS = ROOT / "testing" / "elastic" / "workers"
PLAIN = """
import os, time
from pathlib import Path
Path(os.environ["WEFT_OUTPUTS"], "first").write_text(f"{time.time()} 0.0")
"""
TORCH = """
import os, time
from pathlib import Path
began = time.time()
import torch
imported_s = time.time() - began
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
Path(os.environ["WEFT_OUTPUTS"], "first").write_text(f"{time.time()} {imported_s}")
"""


async def tell(folder: Path, hosts: int, rounds: int, script: str) -> list[tuple[float, float]]:
    """Return, for each round, the seconds from the submission to the first step, and those that importing took."""
    from testing.jobs.desk import desk_on, opened

    from weft.jobs.scheduler.model import Policy
    from weft.jobs.store.hosts import list_hosts

    found = []
    with opened(f"sqlite:///{folder}/weft.db") as database:
        policy = Policy(idle_s=0.5, settle_s=0.5)  # the runs grow again soon, for the next round
        async with desk_on(database, folder, policy=policy) as desk:
            service = desk.service
            for number in range(1, hosts + 1):
                await service.add_host(f"h{number}")
            await service.drain(service.host)
            known = [host for host in await service.database.read(list_hosts) if host.name != service.host]
            room = int(sum(host.total.cpus for host in known))
            files = {"uncompiled.py": (WORKERS / "uncompiled.py").read_text()}
            steady, hurry = (WORKERS / "steady.py").read_text(), folder / "hurry"
            run = f"run: job.py --steps 100000 --pause 0.05 --hurry {hurry}"
            (elastic,) = await desk.submit_all(steady, f"{run}\nworkers: 1:{room}", files)
            for _ in range(rounds):
                await desk.until(elastic, lambda job: job.state == "running" and job.workers == room)
                await asyncio.sleep(2.0)  # it has settled
                began = time.time()
                urgent = await desk.submit(script, "queue: {priority: 95}")
                at, imported = (await desk.appears(desk.path(urgent, "outputs", "first"))).split()
                found.append((float(at) - began, float(imported)))
                await desk.reach(urgent)
                await moments(desk, (elastic, urgent), began)
            await desk.act(elastic, "stop")
            await desk.reach(elastic)
    return found


async def moments(desk: Desk, jobs: tuple[int, ...], began: float) -> None:
    """Print when what happened to the jobs of one round, in seconds after its submission."""
    from weft.jobs.store.events import events_after

    topics = [f"job:{number}" for number in jobs]
    events = await desk.service.database.read(lambda c: events_after(c, 0, topics, 100_000))
    told = [
        f"job {event.topic[4:]} {event.data.get('state', event.kind)} {event.time_ms / 1000 - began:.2f}"
        for event in events
        if event.time_ms / 1000 >= began
    ]
    print("   ", ", ".join(told), file=sys.stderr, flush=True)


def on_cluster(hosts: int, rounds: int, with_torch: bool) -> list[tuple[float, float]]:
    """Run the story on the head of a new cluster."""
    from testing.cluster.cluster import VirtualCluster

    with tempfile.TemporaryDirectory(prefix="weft-urgent-") as folder, VirtualCluster(hosts) as cluster:
        words = ["--story", folder, "--hosts", str(hosts), "--rounds", str(rounds)]
        words += ["--torch"] if with_torch else []
        command = [sys.executable, "-m", "benchmarks.jobs_harness.urgent", *words]
        env = {**os.environ, **cluster.environment, "XDG_CACHE_HOME": f"{folder}/cache"}
        story = cluster.popen(command, env=env, cwd=ROOT, stderr=subprocess.PIPE)
        output, errors = story.communicate(timeout=900)
        print(errors if story.returncode == 0 else "", end="", file=sys.stderr)
        if story.returncode:
            raise SystemExit(f"the story failed: {errors[-2000:]}")
        return [(float(first), float(imported)) for first, imported in json.loads(output.splitlines()[-1])]


def main(words: list[str]) -> None:
    """Print the figures beside the claims."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--story", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    script = TORCH if given.torch else PLAIN
    if given.story is not None:
        print(json.dumps(asyncio.run(tell(given.story, given.hosts, given.rounds, script))), flush=True)
        return
    found = on_cluster(given.hosts, given.rounds, given.torch)
    for first_s, imported_s in found:
        print(f"  {first_s:.2f} s, of which {imported_s:.2f} s importing torch")
    if not given.torch:
        median_s = statistics.median(first_s for first_s, _ in found)
        print(claims.report("jobs_scheduling", {"urgent-s": median_s}), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
