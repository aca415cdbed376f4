"""The collectives against their goals: row by row, ours and the rival in turns in the same processes.

    python benchmarks/collectives.py                        every row; those of the cluster need root
    python benchmarks/collectives.py --list
    python benchmarks/collectives.py --only gloo-2 ddp      some rows
    python benchmarks/collectives.py --only busy-2 busy-4 --busy 4   beside four busy processes a core
    python benchmarks/collectives.py --json

Times are medians, each of a call on its slowest rank; one torch thread a rank. Run it on an otherwise idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for testing.cluster

from benchmarks import claims  # noqa: E402
from testing.cluster.cluster import VirtualCluster, missing  # noqa: E402

from weft.collectives.bench.report import BenchReport, Row  # noqa: E402
from weft.text import format_seconds, format_size  # noqa: E402

WEFT = str(Path(sys.executable).with_name("weft"))
WORKERS = Path(__file__).parent / "workers"
ONE_THREAD = ("--env", "OMP_NUM_THREADS=1")
RATE = 1e9 / 8  # bytes a second of a card of the virtual cluster
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One goal and what was measured."""

    row: str
    what: str
    ours_s: float | None = None
    rival_s: float | None = None
    ratio: float | None = None
    least: float | None = None  # the goal: the ratio must be at least, or at most, this
    most: float | None = None
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.ratio is None:
            return None
        return (self.least is None or self.ratio >= self.least) and (
            self.most is None or self.ratio <= self.most
        )

    @property
    def goal(self) -> str:
        return (f">= {self.least:g}" if self.least is not None else "") + (
            f"<= {self.most:g}" if self.most is not None else ""
        )


@dataclass
class Bench:
    """Runs `weft bench` and other programs here and on the virtual cluster, which is built when first needed."""

    stack: ExitStack
    iterations: int
    pin: bool
    compute_ms: float
    busy: int = 4
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))

    @cached_property
    def cluster(self) -> VirtualCluster:
        if why := missing():
            raise SkipError(f"needs the virtual cluster: {why}")
        return self.stack.enter_context(VirtualCluster(4, rate="1gbit"))

    @property
    def _common(self) -> tuple[str, ...]:
        return ONE_THREAD if self.pin else (*ONE_THREAD, "--no-pin")

    def bench(self, *args: str, on_cluster: bool = False, iterations: int | None = None) -> BenchReport:
        argv = ["bench", *args, *self._common, "--iterations", str(iterations or self.iterations), "--json"]
        data = json.loads(self.weft(*argv, on_cluster=on_cluster))
        rows = tuple(Row.from_json(entry) for entry in data.pop("rows"))
        report = BenchReport(rows=rows, about=data)
        assert not report.wrong
        return report

    @contextmanager
    def beside_busy_processes(self) -> Iterator[None]:
        """Have `busy` processes for each core that never wait."""
        others = [
            subprocess.Popen([sys.executable, "-c", "while True: pass"])
            for _ in range(self.busy * (os.cpu_count() or 1))
        ]
        try:
            yield
        finally:
            for process in others:
                process.kill()
                process.wait()

    def script(self, workers: int, script: Path, *args: str) -> Any:
        """The data that rank 0 of a script prints."""
        out = self.weft("run", "-n", str(workers), *self._common, str(script), *args)
        return json.loads(out.partition("[0] ")[2])

    def weft(self, *args: str, on_cluster: bool = False) -> str:
        if on_cluster:
            cluster = self.cluster
            env = {"XDG_CACHE_HOME": str(self.folder / "cache"), **cluster.environment}
            return cluster.run([WEFT, *args], env=env, cwd=self.folder, timeout=900).stdout
        return subprocess.run(
            [WEFT, *args], cwd=self.folder, check=True, capture_output=True, text=True, timeout=900
        ).stdout

    @property
    def on_hosts(self) -> tuple[str, ...]:
        """Four hosts by two workers."""
        return ("-H", ",".join(host.name for host in self.cluster.hosts), "--per-host", "2", "--skip-checks")


class SkipError(Exception):
    """A row that cannot be measured here, or not yet."""


def faster(name: str, report: BenchReport, rival: str, goals: Sequence[float]) -> Iterator[Finding]:
    """How many times as long the rival takes, at each size."""
    rivals = [row for row in report.rows if row.backend == rival]
    for row, least in zip(rivals, goals, strict=True):
        ours = report.ours(row)
        assert ours is not None
        yield Finding(
            row=name,
            what=f"{format_size(row.size, trimmed=True)}, {rival} / weft",
            ours_s=ours.time_s,
            rival_s=row.time_s,
            ratio=row.time_s / ours.time_s,
            least=least,
        )


def sizes(*counts: int) -> tuple[str, str]:
    return "--sizes", ",".join(map(str, counts))


EVERY_SIZE = tuple(KIB * 4**power for power in range(9))  # 1 KiB to 64 MiB
FOUR = (4 * KIB, 256 * KIB, 4 * MIB, 64 * MIB)


def gloo_2(bench: Bench) -> Iterator[Finding]:
    """One host, 2 workers, fp32 all_reduce, against gloo"""
    report = bench.bench("-n", "2", *sizes(*FOUR), "--against", "gloo")
    yield from faster("gloo-2", report, "gloo", (5, 5, 3, 2))


def gloo_4(bench: Bench) -> Iterator[Finding]:
    """One host, 4 workers (the goal is for 2 cores), against gloo"""
    report = bench.bench("-n", "4", *sizes(*FOUR), "--against", "gloo")
    yield from faster("gloo-4", report, "gloo", (3, 3, 3, 2))


def busy_2(bench: Bench) -> Iterator[Finding]:
    """One host, 2 workers beside --busy processes a core, 1 KiB to 64 MiB, against gloo"""
    yield from beside_others("busy-2", bench, 2)


def busy_4(bench: Bench) -> Iterator[Finding]:
    """One host, 4 workers beside --busy processes a core, 1 KiB to 64 MiB, against gloo"""
    yield from beside_others("busy-4", bench, 4)


def beside_others(name: str, bench: Bench, workers: int) -> Iterator[Finding]:
    with bench.beside_busy_processes():
        report = bench.bench("-n", str(workers), *sizes(*EVERY_SIZE), "--against", "gloo")
    yield from faster(name, report, "gloo", (1,) * len(EVERY_SIZE))


def mpi_2(bench: Bench) -> Iterator[Finding]:
    """One host, 2 workers, against Open MPI through mpi4py"""
    report = bench.bench("-n", "2", "--engine", "mpi", *sizes(*FOUR[1:]), "--against", "mpi")
    yield from faster("mpi-2", report, "mpi", (1.5, 1.5, 1.5))


def bound_s(hosts: int, size: int) -> float:
    """What the cards alone need: each must send, and receive, 2(H-1)/H of the message."""
    return 2 * (hosts - 1) / hosts * size / RATE


def against_bound(name: str, report: BenchReport, most: float) -> Finding:
    ours = report.rows[0]
    bound = bound_s(report.about["hosts"], ours.size)
    return Finding(
        row=name,
        what=f"{format_size(ours.size, trimmed=True)}, weft / the cards' bound",
        ours_s=ours.time_s,
        rival_s=bound,
        ratio=ours.time_s / bound,
        most=most,
    )


def cluster_16mib(bench: Bench) -> Iterator[Finding]:
    """4 virtual hosts x 2 on 1 Gbit/s, 16 MiB, ranks in a block per host and dealt"""
    for order, least in (("host", 1.15), ("round-robin", 2.2)):
        args = (*bench.on_hosts, "--rank-order", order, *sizes(16 * MIB), "--against", "gloo")
        report = bench.bench(*args, on_cluster=True, iterations=_fewer(bench))
        yield against_bound(f"cluster-16MiB, {order}", report, 1.15)
        yield from faster(f"cluster-16MiB, {order}", report, "gloo", (least,))


def cluster_bf16(bench: Bench) -> Iterator[Finding]:
    """The same with wire="bf16", against fp32"""
    probe = [*bench.on_hosts, "--env", "WEFT_WIRE=bf16", str(WORKERS / "wire_probe.py")]
    if "rounded" not in bench.weft("run", *probe, on_cluster=True):
        raise SkipError("not built yet: WEFT_WIRE=bf16 changes nothing")
    args = (*bench.on_hosts, *sizes(16 * MIB), "--against", "weft:wire=bf16")
    report = bench.bench(*args, on_cluster=True, iterations=_fewer(bench))
    fp32, bf16 = report.rows
    yield Finding(
        row="cluster-bf16",
        what="16 MiB, bf16 wire / fp32 wire",
        ours_s=bf16.time_s,
        rival_s=fp32.time_s,
        ratio=bf16.time_s / fp32.time_s,
        most=0.6,
    )


def cluster_small(bench: Bench) -> Iterator[Finding]:
    """The same cluster, 1 KiB to 64 KiB, against gloo"""
    args = (*bench.on_hosts, *sizes(KIB, 4 * KIB, 16 * KIB, 64 * KIB), "--against", "gloo")
    report = bench.bench(*args, on_cluster=True)
    yield from faster("cluster-small", report, "gloo", (1.5,) * 4)


def cluster_uneven(bench: Bench) -> Iterator[Finding]:
    """The same with 2, 2, 1 and 1 workers, 16 MiB"""
    counts = zip(bench.cluster.hosts, (2, 2, 1, 1), strict=True)
    hosts = ",".join(f"{host.name}:{count}" for host, count in counts)
    args = ("-H", hosts, "--allow-uneven", "--skip-checks", *sizes(16 * MIB), "--against", "gloo")
    report = bench.bench(*args, on_cluster=True, iterations=_fewer(bench))
    yield against_bound("cluster-uneven", report, 1.25)


def ddp(bench: Bench) -> Iterator[Finding]:
    """DDP, 25 M parameters, 2 workers, one host: time of a step with compute of a fixed cost"""
    steps, compute_ms = str(max(5, bench.iterations // 2)), str(bench.compute_ms)
    found = bench.script(2, WORKERS / "ddp_step.py", steps, compute_ms)
    yield Finding(
        row="ddp",
        what=f"step with {bench.compute_ms:g} ms compute, gloo / weft",
        ours_s=found["weft"],
        rival_s=found["gloo"],
        ratio=found["gloo"] / found["weft"],
        least=1.2,
        note=f"without communication {format_seconds(found['alone'], padded=True)}",
    )


def explore(bench: Bench) -> Iterator[Finding]:
    """The mode explore against the best fixed mode, here and on the cluster"""
    if find_spec("weft.collectives.modes.explore") is None:
        raise SkipError("not built yet: the mode explore")
    modes = ",".join(f"weft:mode={mode}" for mode in ("shm", "ring", "gloo"))
    here = ("-n", "2", *sizes(*FOUR), "--mode", "explore", "--against", modes)
    yield from against_best("explore, one host", bench.bench(*here))
    modes = ",".join(f"weft:mode=shm+{mode}" for mode in ("ring", "gloo"))
    there = (*bench.on_hosts, *sizes(4 * KIB, 64 * KIB, 16 * MIB), "--mode", "explore", "--against", modes)
    yield from against_best(
        "explore, cluster", bench.bench(*there, on_cluster=True, iterations=_fewer(bench))
    )


def against_best(name: str, report: BenchReport) -> Iterator[Finding]:
    for ours in (row for row in report.rows if row.backend == "weft"):
        fixed = [row for row in report.rows if row.size == ours.size and row is not ours]
        best = min(fixed, key=lambda row: row.time_s)
        yield Finding(
            row=name,
            what=f"{format_size(ours.size, trimmed=True)}, explore / {best.backend.rpartition('=')[2]}",
            ours_s=ours.time_s,
            rival_s=best.time_s,
            ratio=ours.time_s / best.time_s,
            most=1.1,
        )


def copies(bench: Bench) -> Iterator[Finding]:
    """moonshot: the memory copies that an all_reduce of 2 workers cannot do without, over its time"""
    report = bench.bench("-n", "2", *sizes(*FOUR[1:]), "--against", "copies")
    yield from faster("copies", report, "copies", (0.7, 0.7, 0.7))


def _fewer(bench: Bench) -> int:
    """A call takes a quarter of a second there."""
    return max(3, bench.iterations // 3)


ROWS: dict[str, Callable[[Bench], Iterator[Finding]]] = {
    "gloo-2": gloo_2,
    "gloo-4": gloo_4,
    "busy-2": busy_2,
    "busy-4": busy_4,
    "mpi-2": mpi_2,
    "cluster-16MiB": cluster_16mib,
    "cluster-bf16": cluster_bf16,
    "cluster-small": cluster_small,
    "cluster-uneven": cluster_uneven,
    "ddp": ddp,
    "explore": explore,
    "copies": copies,
}


def measure(name: str, bench: Bench) -> list[Finding]:
    """The findings of a row, or why there are none: one that fails does not take the others with it."""
    found: list[Finding] = []
    try:
        found.extend(ROWS[name](bench))
    except SkipError as reason:
        found.append(Finding(row=name, what="", note=str(reason)))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = error.stderr.decode() if isinstance(error.stderr, bytes) else error.stderr or ""
        told = [line for line in said.splitlines() if line.startswith("weft: ")]
        found.append(Finding(row=name, what="", note=f"failed: {(told or [str(error)])[0]}"))
        print(said, file=sys.stderr)
    return found


def render(finding: Finding) -> str:
    times = [
        format_seconds(value, padded=True) if value is not None else ""
        for value in (finding.ours_s, finding.rival_s)
    ]
    ratio = f"{finding.ratio:.2f}" if finding.ratio is not None else ""
    verdict = {True: "met", False: "missed", None: ""}[finding.met]
    start = f"{finding.row:<27} {finding.what:<36} {times[0]:>8} {times[1]:>8} {ratio:>7}  {finding.goal:<8}"
    return f"{start} {verdict:<6}  {finding.note}".rstrip()


def figures(findings: Sequence[Finding]) -> dict[str, float]:
    """Return the claimed figures among some findings; of several sizes that share a claim, the worst."""
    found: dict[str, float] = {}
    for finding in findings:
        name = _claim(finding.row, finding.what)
        if name and finding.ratio is not None:
            worse = max if finding.goal.startswith("<=") else min
            found[name] = worse(finding.ratio, found.get(name, finding.ratio))
    return found


def _claim(row: str, what: str) -> str:
    """Return the name of the claim that a finding is about, or nothing."""
    size = what.split(",")[0].replace(" ", "")
    if row in ("gloo-2", "gloo-4", "mpi-2") or (row == "copies" and size != "64MiB"):
        return f"{row}-{size}"
    if row.startswith("cluster-16MiB"):
        if "gloo" not in what:
            return "cluster-bound"
        return "cluster-gloo-robin" if "robin" in row else "cluster-gloo"
    return (
        "explore"
        if row.startswith("explore")
        else row
        if row.startswith(("busy-", "cluster-", "ddp"))
        else ""
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(ROWS), metavar="ROW", help="measure these rows")
    parser.add_argument("--list", action="store_true", help="name the rows")
    parser.add_argument("--iterations", type=int, default=30, help="a third of it for what takes long")
    parser.add_argument("--no-pin", action="store_true", help="do not bind workers to cores")
    parser.add_argument(
        "--busy", type=int, default=4, help="busy processes a core in the rows busy-2 and busy-4"
    )
    parser.add_argument("--compute-ms", type=float, default=50.0, help="compute in a step of DDP")
    parser.add_argument("--json", action="store_true", help="print the findings as data")
    options = parser.parse_args()
    if options.list:
        for name, row in ROWS.items():
            print(f"{name:<16} {row.__doc__}")
        return 0
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    if not options.json:
        print(f"{date.today()}, {machine}, load {os.getloadavg()[0]:.1f} before")
        print(f"{'row':<27} {'what':<36} {'ours':>8} {'rival':>8} {'ratio':>7}  {'goal':<8}")
    findings = []
    with ExitStack() as stack:
        bench = Bench(stack, options.iterations, not options.no_pin, options.compute_ms, options.busy)
        for name in options.only or ROWS:
            for finding in measure(name, bench):
                findings.append(finding)
                if not options.json:
                    print(render(finding), flush=True)
    if not options.json:
        print("\n" + claims.report("collectives", figures(findings)), end="")
    if options.json:
        data = [asdict(finding) | {"met": finding.met} for finding in findings]
        print(json.dumps({"date": str(date.today()), "machine": machine, "findings": data}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
