"""Ranks in a block per host, or dealt over the hosts: the time of an all-reduce by Gloo, whose ring follows the ranks.

    python benchmarks/rank_order.py            4 virtual hosts x 2 workers on 1 Gbit/s links; needs root

Both orders take turns, in runs of their own; rank 0 prints the median of its reductions.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for testing.cluster

from testing.cluster.cluster import VirtualCluster  # noqa: E402

WORKER = """
import statistics, sys, time, torch, torch.distributed as dist, weft
world = weft.init()
gradients = torch.ones(int(sys.argv[1]) * 2**18)
times = []
for _ in range(6):
    dist.barrier()
    began = time.perf_counter()
    dist.all_reduce(gradients)
    times.append(time.perf_counter() - began)
if world.rank == 0:
    print("median", statistics.median(times[1:]))
weft.shutdown()
"""


def seconds(cluster: VirtualCluster, folder: Path, order: str, mebibytes: int) -> float:
    names = ",".join(host.name for host in cluster.hosts)
    argv = [
        str(Path(sys.executable).with_name("weft")),
        "run",
        "-H",
        names,
        "--per-host",
        "2",
        "--skip-checks",
    ]
    done = cluster.run(
        [*argv, "--rank-order", order, str(folder / "worker.py"), str(mebibytes)],
        env=cluster.environment,
        cwd=folder,
        timeout=300,
    )
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--mebibytes", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    times: dict[str, list[float]] = {"host": [], "round-robin": []}
    with VirtualCluster(4, rate=options.rate) as cluster, tempfile.TemporaryDirectory() as name:
        (Path(name) / "worker.py").write_text(WORKER)
        for _ in range(options.rounds):
            for order, values in times.items():
                values.append(seconds(cluster, Path(name), order, options.mebibytes))
    for order, values in times.items():
        print(f"{order:<12} {statistics.median(values):.3f} s for {options.mebibytes} MiB at {options.rate}")
    ratio = statistics.median(times["round-robin"]) / statistics.median(times["host"])
    print(f"ratio {ratio:.2f}: round-robin / host")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(error.stderr)
