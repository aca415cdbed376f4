"""Plans beside what they plan: predicted and measured steps on the virtual cluster, and simulated scaling.

    python benchmarks/plan.py                       every figure; needs root for the virtual cluster
    python benchmarks/plan.py --only share budget   some of them: share, budget, predict, ddp, made, scaling
    python benchmarks/plan.py --json                every row as data

4 virtual hosts x 2 workers at 1 Gbit/s unless said. Compute is a calibrated wait that leaves the core to others, since
all workers share the cores of one machine; gradients, optimizer and all that is sent are real. The share of time
computing is the step of the same workers that exchange nothing, by the step of a way. Ways take turns in the same
processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import claims  # noqa: E402
from benchmarks.plan_published import PUBLISHED, efficiency, planned_efficiency  # noqa: E402
from testing.cluster.cluster import VirtualCluster, missing  # noqa: E402

from weft.parallel import choose  # noqa: E402
from weft.parallel.simulated.constants import parse_rate, simulated_cluster  # noqa: E402
from weft.parallel.simulated.models import transformer_step  # noqa: E402

WEFT = str(Path(sys.executable).with_name("weft"))
WORKER = ROOT / "benchmarks" / "workers" / "plan_steps.py"
MIB = 1 << 20
RATES = {"100mbit": 1e8 / 8, "1gbit": 1e9 / 8, "2500mbit": 2.5e9 / 8}  # bytes a second
PASSES = 8
WAYS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp bf16": {"wire": "bf16"},
    "fsdp": {"kind": "fsdp", "sync_every_pass": True},
    "fsdp-keep": {"kind": "fsdp-keep"},
    "hsdp": {"kind": "hsdp"},
}


@dataclass(frozen=True)
class Bed:
    """A virtual cluster at one rate, and a folder for its runs."""

    cluster: VirtualCluster
    folder: Path

    def run(self, hosts: int, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Run the worker on some of the hosts; what it printed."""
        names = ",".join(f"h{number + 1}" for number in range(hosts))
        argv = [WEFT, "run", "-H", names, "--per-host", "2", "--skip-checks", "--no-pin"]
        argv += ["--env", "OMP_NUM_THREADS=1", "--env", f"PYTHONPATH={ROOT}", "--mode", "shm,ring"]
        argv += [str(WORKER), json.dumps({"cases": cases})]
        env = {"XDG_CACHE_HOME": str(self.folder / "cache"), **self.cluster.environment}
        done = self.cluster.run(argv, env=env, cwd=self.folder, timeout=900)
        for line in done.stdout.splitlines():
            if "weft-facts " in line:
                print(line, file=sys.stderr)
        lines = [
            line.partition("weft-figure ")[2] for line in done.stdout.splitlines() if "weft-figure " in line
        ]
        return [json.loads(line) for line in lines]


def fsdp_case(ratio: float, **more: Any) -> dict[str, Any]:
    """A net whose gathers and reduce-scatters of a pass take `ratio` times its compute under FSDP2 on 1 Gbit/s."""
    nbytes = 32 * MIB
    compute_s = 3 * 0.75 * nbytes / RATES["1gbit"] / ratio
    return {
        "name": f"{ratio:g}x",
        "layers": 8,
        "bytes": nbytes,
        "compute_s": compute_s,
        "passes": PASSES,
        **more,
    }


def share_rows(bed: Bed, ratios: list[float]) -> list[dict[str, Any]]:
    return bed.run(
        4, [fsdp_case(ratio, rounds=3, ways={"alone": {}, "chosen": {}, "gloo": {}}) for ratio in ratios]
    )


def budget_rows(bed: Bed) -> list[dict[str, Any]]:
    """The memory of a worker holds neither a replica nor half of one with its optimizer state."""
    return bed.run(4, [fsdp_case(4, budget=62 * MIB, ways={"chosen": {}, "gloo": {}})])


def predict_cases(rate: str) -> list[dict[str, Any]]:
    """Nets of even layers, and of layers as uneven as those of a model with a vocabulary, in several tensors each."""
    nbytes = {"100mbit": 4 * MIB, "1gbit": 32 * MIB, "2500mbit": 48 * MIB}[rate]
    compute_s = 0.6 * nbytes / RATES[rate] * 2
    common = {"bytes": nbytes, "compute_s": compute_s, "passes": 2, "steps": 3}
    return [
        {**common, "name": "even", "layers": 8},
        {
            **common,
            "name": "uneven",
            "sizes": [6, 1, 1, 1, 1, 1, 1, 4],
            "times": [1, 3, 3, 3, 3, 3, 3, 2],
            "tensors": 4,
        },
    ]


def predict_rows(bed: Bed, rate: str, hosts: int) -> list[dict[str, Any]]:
    cases = [
        {**case, "name": f"{case['name']} {rate} x {hosts}", "ways": {**WAYS, "alone": {}, "chosen": {}}}
        for case in predict_cases(rate)
    ]
    return bed.run(hosts, cases)


def ddp_rows(bed: Bed) -> list[dict[str, Any]]:
    """A net whose reductions are small beside its compute: plain DDP is best, and a plan must cost nothing."""
    case = {"name": "ddp best", "layers": 8, "bytes": 2 * MIB, "compute_s": 0.5, "passes": 1, "rounds": 3}
    return bed.run(4, [{**case, "ways": {"ddp": {}, "chosen": {}}}])


def cluster_rows(bed: Bed, part: str, ratios: list[float]) -> list[dict[str, Any]]:
    if part == "share":
        return share_rows(bed, ratios)
    return budget_rows(bed) if part == "budget" else ddp_rows(bed)


def made_s() -> float:
    """Seconds of this process that a plan for a 7B model on 64 hosts of 8 takes."""
    began = time.process_time()
    choose(transformer_step("7b", "h100", passes=8), simulated_cluster(64, 8, "h100", parse_rate("100Gb")))
    return time.process_time() - began


def figures(rows: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """What the claims are about, from the rows of all parts."""
    found: dict[str, float] = {}
    shares = rows.get("share", ())
    alone = {row["case"]: row["measured_s"] for row in shares if row["name"] == "alone"}
    for row in shares:
        if row["name"] != "alone":
            key = f"{'share' if row['name'] == 'chosen' else 'gloo'}-{row['case']}"
            found[key] = 100 * alone[row["case"]] / row["measured_s"]
    budget = {row["name"]: row["measured_s"] for row in rows.get("budget", ())}
    if budget:
        found["budget"] = budget["gloo"] / budget["chosen"]
    if predicted := rows.get("predict"):
        errors = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in predicted if row["predicted_s"]]
        found["error-median"], found["error-worst"] = 100 * statistics.median(errors), 100 * max(errors)
        cases: dict[str, dict[str, float]] = {}
        for row in predicted:
            if row["predicted_s"]:
                cases.setdefault(row["case"], {})[row["name"]] = row["measured_s"]
        right = [times["chosen"] <= 1.05 * min(times.values()) for times in cases.values()]
        found["choices-right"] = 100 * sum(right) / len(right)
    ddp = {row["name"]: row["measured_s"] for row in rows.get("ddp", ())}
    if ddp:
        found["plan-beside-ddp"] = ddp["chosen"] / ddp["ddp"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("share", "budget", "predict", "ddp", "made", "scaling")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--ratios", nargs="+", type=float, default=[4, 2, 1, 0.5])
    parser.add_argument("--rates", nargs="+", choices=tuple(RATES), default=list(RATES))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} before", file=sys.stderr)
    rows: dict[str, list[dict[str, Any]]] = {}
    why = missing()
    if why:
        print(f"the rows of the virtual cluster need root: {why}", file=sys.stderr)
    for rate in RATES:
        at_rate = [part for part in ("share", "budget", "ddp") if rate == "1gbit" and part in options.only]
        if "predict" in options.only and rate in options.rates:
            at_rate.append("predict")
        if why or not at_rate:
            continue
        with tempfile.TemporaryDirectory() as folder, VirtualCluster(4, rate=rate) as cluster:
            bed = Bed(cluster, Path(folder))
            for part in at_rate:
                if part == "predict":
                    found = [row for hosts in (2, 4) for row in predict_rows(bed, rate, hosts)]
                else:
                    found = cluster_rows(bed, part, options.ratios)
                rows.setdefault(part, []).extend(found)
                for row in found:
                    _print_row(part, row)
    measured = figures(rows)
    if "made" in options.only:
        measured["made"] = made_s()
    if "scaling" in options.only:
        for published in PUBLISHED:
            predicted = efficiency(published)
            print(
                f"scaling   {published.name:<46} {predicted:.3f} published {published.efficiency:.2f}",
                file=sys.stderr,
            )
            measured[f"scaling-{published.key}"] = 100 * abs(predicted / published.efficiency - 1)
        measured["scaling-ddl-plan"] = 100 * planned_efficiency(PUBLISHED[0])
    if options.json:
        print(json.dumps({"rows": rows, "figures": measured}, indent=2))
    else:
        print(claims.report("plan", measured))
    return 0


def _print_row(part: str, row: dict[str, Any]) -> None:
    predicted = f"{row['predicted_s']:.3f}" if row["predicted_s"] else "-"
    share = row["compute_s"] / row["measured_s"]
    print(
        f"{part:<8} {row['case']:<13} {row['name']:<10} {row['measured_s']:.3f} s, predicted {predicted}, "
        f"computing {share:.0%}: {row['way']}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
