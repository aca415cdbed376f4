"""What is not an all-reduce, between hosts: reduce_scatter, all_gather and broadcast against Gloo and the cards' bound.

    python benchmarks/copies.py [--iterations 10] [--mib 16] [--no-pin]        needs root for the virtual cluster

4 virtual hosts x 2 workers on 1 Gbit/s, ranks in a block per host and dealt. Both backends take turns in the same
processes; times are medians, each of a call on its slowest rank.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.collectives import MIB, RATE, Bench, Finding, SkipError, render, sizes

OPERATIONS = ("reduce_scatter", "all_gather", "broadcast")


def bound_s(operation: str, hosts: int, size: int) -> float:
    """What the cards alone need, each way: all of a broadcast, (H - 1) / H of what is dealt out or gathered."""
    share = 1.0 if operation == "broadcast" else (hosts - 1) / hosts
    return share * size / RATE


def findings(bench: Bench, order: str, size: int) -> Iterator[Finding]:
    args = (*bench.on_hosts, "--rank-order", order, "--op", ",".join(OPERATIONS), *sizes(size))
    report = bench.bench(*args, "--against", "gloo", on_cluster=True)
    for ours, rival in zip(report.rows[::2], report.rows[1::2], strict=True):
        assert (ours.backend, rival.backend) == ("weft", "gloo")
        assert ours.operation == rival.operation
        bound = bound_s(ours.operation, report.about["hosts"], ours.size)
        name = f"{ours.operation}, {order}"
        yield Finding(
            row=name,
            what="gloo / weft",
            ours_s=ours.time_s,
            rival_s=rival.time_s,
            ratio=rival.time_s / ours.time_s,
            least=1.0,
        )
        yield Finding(
            row=name,
            what="weft / the cards' bound",
            ours_s=ours.time_s,
            rival_s=bound,
            ratio=ours.time_s / bound,
            most=1.25,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--mib", type=int, default=16, help="of the whole tensor")
    parser.add_argument("--no-pin", action="store_true", help="do not bind workers to cores")
    options = parser.parse_args()
    print(f"{'row':<27} {'what':<36} {'ours':>8} {'other':>8} {'ratio':>7}  goal")
    with ExitStack() as stack:
        bench = Bench(stack, options.iterations, not options.no_pin, 0.0)
        try:
            for order in ("host", "round-robin"):
                for finding in findings(bench, order, options.mib * MIB):
                    print(render(finding), flush=True)
        except SkipError as reason:
            print(reason)
    return 0


if __name__ == "__main__":
    sys.exit(main())
