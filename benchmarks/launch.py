"""How long from the command to the first line of a script: weft against torchrun, and four hosts against one.

    python benchmarks/launch.py                two workers here; four virtual hosts by two, if this is root
    python benchmarks/launch.py --rounds 15 --json

All cases of a round run one after the other, so that a busy moment hits them alike; the ratio of the medians is
printed, and that of the minima beside it. `bare` prints a line; `torch` imports torch first, as every real script does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # for testing.cluster

from benchmarks import claims  # noqa: E402
from testing.cluster.cluster import VirtualCluster, missing  # noqa: E402

BIN = Path(sys.executable).parent
SCRIPTS = {
    "bare": "print('first line', flush=True)\n",
    "torch": "import torch\nprint('first line', flush=True)\n",
}
# (what, against what, the most it should be)
RATIOS = (
    ("weft, 2 local", "torchrun, 2 local", 1.15),
    ("weft, 4 hosts x 2", "weft, 8 local", 1.5),
    ("weft, 4 hosts x 2", "torchrun, 8 local", 1.5),
    ("weft, 4 hosts x 2, new connections", "weft, 8 local", None),
)

Start = Callable[[], "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Case:
    name: str
    start: Start


def seconds_to_first_line(start: Start) -> float:
    began = time.perf_counter()
    process = start()
    assert process.stdout is not None
    for line in process.stdout:
        if "first line" in line:
            break
    else:
        raise RuntimeError(f"ended with {process.wait()} before its first line")
    elapsed = time.perf_counter() - began
    process.communicate()
    return elapsed


def cases(script: Path, folder: Path, cluster: VirtualCluster | None) -> list[Case]:
    # What the caller set for Python's own start-up would change what is measured.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

    def here(*argv: str) -> Start:
        return lambda: subprocess.Popen(
            [str(BIN / argv[0]), *argv[1:]],
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    found = [
        Case("torchrun, 2 local", here("torchrun", "--nproc-per-node", "2", str(script))),
        Case("weft, 2 local", here("weft", "run", "-n", "2", str(script))),
        Case("torchrun, 8 local", here("torchrun", "--nproc-per-node", "8", str(script))),
        Case("weft, 8 local", here("weft", "run", "-n", "8", str(script))),
    ]
    if cluster is None:
        return found
    names = ",".join(host.name for host in cluster.hosts)

    def on_hosts(more: Callable[[], Mapping[str, str]]) -> Start:
        return lambda: cluster.popen(
            [str(BIN / "weft"), "run", "-H", names, "--per-host", "2", str(script)],
            env={"XDG_CACHE_HOME": str(folder / "cache"), **cluster.environment, **more()},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def no_connections() -> Mapping[str, str]:
        return {"XDG_RUNTIME_DIR": tempfile.mkdtemp(dir=folder)}

    return [
        *found,
        Case("weft, 4 hosts x 2", on_hosts(dict)),
        Case("weft, 4 hosts x 2, new connections", on_hosts(no_connections)),
    ]


def measure(kind: str, rounds: int, cluster: VirtualCluster | None) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "first_line.py"
        script.write_text(SCRIPTS[kind])
        chosen = cases(script, folder, cluster)
        times: dict[str, list[float]] = {case.name: [] for case in chosen}
        for number in range(rounds + 1):
            for case in chosen:
                elapsed = seconds_to_first_line(case.start)
                if number:  # the first round fills caches, and measures the links of new hosts
                    times[case.name].append(elapsed)
            if sys.stderr.isatty():
                print(f"\r{kind}: round {number} of {rounds}", end="", file=sys.stderr, flush=True)
        return times


def report(kind: str, times: Mapping[str, list[float]]) -> None:
    print(f"\n{kind:<36} {'median s':>9} {'min s':>9}")
    for name, values in times.items():
        print(f"{name:<36} {statistics.median(values):>9.3f} {min(values):>9.3f}")
    for ours, rival, most in RATIOS:
        if ours in times and rival in times:
            ratio = statistics.median(times[ours]) / statistics.median(times[rival])
            least = min(times[ours]) / min(times[rival])
            goal = f", goal at most {most}" if most else ""
            print(f"ratio {ratio:.2f} (of the minima {least:.2f}{goal}): {ours} / {rival}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--script", choices=[*SCRIPTS, "all"], default="all")
    parser.add_argument("--json", action="store_true", help="print every time as data")
    options = parser.parse_args()
    why_not = missing()
    with ExitStack() as stack:
        cluster = None if why_not else stack.enter_context(VirtualCluster(4))
        if why_not:
            print(f"without the virtual cluster: {why_not}", file=sys.stderr)
        kinds = list(SCRIPTS) if options.script == "all" else [options.script]
        results = {kind: measure(kind, options.rounds, cluster) for kind in kinds}
    if options.json:
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        print(json.dumps({"date": str(date.today()), "machine": machine, "seconds": results}, indent=2))
        return
    for kind, times in results.items():
        report(kind, times)
    print("\n" + claims.report("launch", figures(results)), end="")


def figures(results: Mapping[str, Mapping[str, list[float]]]) -> dict[str, float]:
    """Return the claimed ratios, of medians, as far as they were measured."""
    pairs = {
        "local": ("weft, 2 local", "torchrun, 2 local"),
        "hosts": ("weft, 4 hosts x 2", "weft, 8 local"),
    }
    return {
        name if kind == "bare" else f"{name}-torch": statistics.median(times[ours])
        / statistics.median(times[rival])
        for kind, times in results.items()
        for name, (ours, rival) in pairs.items()
        if ours in times and rival in times
    }


if __name__ == "__main__":
    main()
