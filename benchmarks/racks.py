"""Racks whose uplinks are the bottleneck: levels against one ring over all hosts, and against Gloo.

    python benchmarks/racks.py [--iterations 10] [--mib 16] [--per-host 1 2] [--uplink 1gbit 500mbit]    needs root

4 virtual hosts in 2 racks, cards of 1 Gbit/s. All take turns in the same processes; times are medians, each of a call
on its slowest rank. Ranks lie in the order of the racks, or alternate between them, as a list of hosts by name may have
them: a ring follows that order, levels do not care.

What must pass, in parts of a tensor, each way:          a card          the uplink of a rack
    ring, hosts in the order of their racks              2 (H-1)/H       2 (H-1)/H
    ring, hosts alternating                              2 (H-1)/H       2 (H-1)/H  x  hosts of the rack
    levels                                               2 (H-1)/H       2 (R-1)/R
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.collectives import MIB, ONE_THREAD, RATE, WEFT, sizes
from testing.cluster.cluster import VirtualCluster, missing
from testing.cluster.wires import bits_per_second

from weft.collectives.bench.report import Row
from weft.text import format_seconds

HOSTS, RACKS = 4, 2
# Who has ranks 0, 1, ...: a ring goes along them. The hosts themselves are always given in the order of their racks.
ORDERS = {"in rack order": ("h1", "h2", "h3", "h4"), "alternating": ("h1", "h3", "h2", "h4")}


def bound_s(size: int, uplink: str) -> float:
    """What cards and uplinks need at least, if both work all the time."""
    card = 2 * (HOSTS - 1) / HOSTS * size / RATE
    return max(card, 2 * (RACKS - 1) / RACKS * size / (bits_per_second(uplink) / 8))


def rank_file(order: str, per_host: int) -> str:
    lines = [
        f"rank {index * per_host + local}={host} slot=0:{local}-{local}"
        for index, host in enumerate(ORDERS[order])
        for local in range(per_host)
    ]
    return "\n".join(["#host = h1,h2,h3,h4", *lines]) + "\n"


@dataclass(frozen=True)
class Setup:
    """What is measured, and where."""

    cluster: VirtualCluster
    folder: Path
    size: int
    iterations: int

    def rows(self, order: str, per_host: int) -> tuple[Row, ...]:
        """Levels, a ring over all hosts, and Gloo."""
        file = self.folder / "ranks"
        file.write_text(rank_file(order, per_host))
        # Dimensions that end with the hosts: one rack, whatever the launcher says.
        flat = f"weft:mode=shm+ring:{per_host}x{HOSTS}"
        argv = [WEFT, "bench", "--rankfile", str(file), "--racks", str(RACKS), "--mode", "shm,ring"]
        argv += ["--against", f"{flat},gloo", *sizes(self.size), "--iterations", str(self.iterations)]
        env = {"XDG_CACHE_HOME": str(self.folder / "cache"), **self.cluster.environment}
        argv += ["--skip-checks", *ONE_THREAD, "--json"]
        data = json.loads(self.cluster.run(argv, env=env, cwd=self.folder, timeout=600).stdout)
        rows = tuple(Row.from_json(row) for row in data["rows"])
        assert not any(row.wrong for row in rows)
        return rows


def report(setup: Setup, per_host: int, uplink: str) -> None:
    for order in ORDERS:
        levels, ring, gloo = (row.time_s for row in setup.rows(order, per_host))
        bound = bound_s(setup.size, uplink)
        times = "".join(f"{format_seconds(value, padded=True):>10}" for value in (levels, ring, gloo, bound))
        ratios = f"{ring / levels:>9.2f}{gloo / levels:>9.2f}{levels / bound:>9.2f}"
        print(f"{uplink:<9}{HOSTS} x {per_host}  {order:<14}{times}{ratios}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--per-host", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--uplink", nargs="+", default=["1gbit", "500mbit"])
    options = parser.parse_args()
    if why := missing():
        print(f"needs the virtual cluster: {why}")
        return 0
    print(f"{date.today()}, {options.mib} MiB, load {os.getloadavg()[0]:.1f} before")
    print(
        f"{'uplink':<9}hosts  {'ranks':<14}{'levels':>10}{'ring':>10}{'gloo':>10}{'bound':>10}"
        f"{'ring/l.':>9}{'gloo/l.':>9}{'l./bound':>9}"
    )
    for uplink in options.uplink:
        racks = (HOSTS // RACKS,) * RACKS
        with (
            tempfile.TemporaryDirectory() as folder,
            VirtualCluster(HOSTS, rate="1gbit", racks=racks, uplink=uplink) as cluster,
        ):
            setup = Setup(cluster, Path(folder), options.mib * MIB, options.iterations)
            for per_host in options.per_host:
                report(setup, per_host, uplink)
    return 0


if __name__ == "__main__":
    sys.exit(main())
