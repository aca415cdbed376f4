"""Plans beside what they plan: predicted and measured steps on the virtual cluster, and simulated scaling.

    python benchmarks/plan.py                       every figure; needs root for the virtual cluster
    python benchmarks/plan.py --only share budget   some of them, see --help
    python benchmarks/plan.py --only predict --rates 1gbit --hosts 2 --models even --rows rows.jsonl
    python benchmarks/plan.py --json                every row as data

4 virtual hosts x 2 workers at 1 Gbit/s unless said. Compute is a calibrated wait that leaves the core to others, since
all workers share the cores of one machine; gradients, optimizer and all that is sent are real. The share of time
computing is the step of the same workers that exchange nothing, by the step of a way. Ways take turns in the same
processes. `--rows` keeps the rows in a file, so that short runs add up: figures are about all rows in it.

`predict` are the models that the prediction was mended on, `unseen` others that it was only tried on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import claims  # noqa: E402
from benchmarks.plan_published import PUBLISHED, efficiency, planned_efficiency  # noqa: E402
from benchmarks.plan_rows import Row, error, figures, read_rows, replaced, write_rows  # noqa: E402
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
    rate: str

    def run(self, part: str, hosts: int, cases: list[dict[str, Any]]) -> list[Row]:
        """Run the worker on some of the hosts; what it printed."""
        argv = ["run", *self._on(hosts), "--skip-checks", "--no-pin"]
        argv += ["--env", f"PYTHONPATH={ROOT}", "--mode", "shm,ring"]
        printed = self.weft(*argv, str(WORKER), json.dumps({"cases": cases})).splitlines()
        lines = [line.partition("weft-figure ")[2] for line in printed if "weft-figure " in line]
        return [{"part": part, **json.loads(line)} for line in lines]

    def bound(self, hosts: int, operation: str, nbytes: int) -> Row:
        """Measure a collective beside what the cards allow."""
        argv = ["bench", *self._on(hosts), "--op", operation, "--sizes", str(nbytes), "--iterations", "9"]
        table = json.loads(self.weft(*argv, "--against", "gloo", "--json"))
        times = {row["backend"]: row["time_s"] for row in table["rows"]}
        bound_s = (hosts - 1) / hosts * nbytes / RATES[self.rate]
        case = f"{operation} of {nbytes >> 20} MiB"
        more = {"gloo_s": times["gloo"], "compute_s": 0.0, "way": "", "same": ""}
        return {"part": "bound", "case": case, "name": operation, "measured_s": times["weft"]} | {
            "predicted_s": bound_s,
            **more,
        }

    def weft(self, *arguments: str) -> str:
        env = {"XDG_CACHE_HOME": str(self.folder / "cache"), **self.cluster.environment}
        return self.cluster.run([WEFT, *arguments], env=env, cwd=self.folder, timeout=900).stdout

    def _on(self, hosts: int) -> tuple[str, ...]:
        names = ",".join(f"h{number + 1}" for number in range(hosts))
        return ("-H", names, "--per-host", "2", "--env", "OMP_NUM_THREADS=1")


def fsdp_case(ratio: float, **more: Any) -> dict[str, Any]:
    """A net whose gathers and reduce-scatters of a pass take `ratio` times its compute under FSDP2 on 1 Gbit/s."""
    nbytes = 32 * MIB
    compute_s = 3 * 0.75 * nbytes / RATES["1gbit"] / ratio
    case = {"name": f"{ratio:g}x", "layers": 8, "bytes": nbytes, "compute_s": compute_s, "passes": PASSES}
    return {**case, **more}


def share_rows(bed: Bed, ratios: list[float], rivals: bool) -> list[Row]:
    ways: dict[str, Any] = {"alone": {}, "chosen": {}, **({"gloo": {}} if rivals else {})}
    return bed.run("share", 4, [fsdp_case(ratio, rounds=3, ways=ways) for ratio in ratios])


def budget_rows(bed: Bed) -> list[Row]:
    """The memory of a worker holds neither a replica nor half of one with its optimizer state."""
    return bed.run("budget", 4, [fsdp_case(4, budget=62 * MIB, ways={"chosen": {}, "gloo": {}})])


MODELS: dict[str, dict[str, Any]] = {
    "even": {"layers": 8},
    # As uneven as a model with a vocabulary, in several tensors each.
    "uneven": {"sizes": [6, 1, 1, 1, 1, 1, 1, 4], "times": [1, 3, 3, 3, 3, 3, 3, 2], "tensors": 4},
    "growing": {"sizes": [1, 2, 4, 8, 16], "times": [5, 4, 3, 2, 1], "tensors": 3},
    "many": {"layers": 24, "tensors": 2, "scale": 0.7, "passes": 3},
}
MENDED_ON, UNSEEN = ("even", "uneven"), ("growing", "many")


def predict_cases(rate: str, models: list[str]) -> list[dict[str, Any]]:
    found = []
    for name in models:
        model = {"scale": 1.0, "passes": 2, **MODELS[name]}
        nbytes = int(model.pop("scale") * {"100mbit": 4 * MIB, "1gbit": 32 * MIB, "2500mbit": 48 * MIB}[rate])
        case = {"name": name, "bytes": nbytes, "compute_s": 1.2 * nbytes / RATES[rate], "rounds": 2}
        found.append({**case, **model})
    return found


def predict_rows(bed: Bed, part: str, hosts: int, models: list[str], ways: list[str]) -> list[Row]:
    asked = {name: WAYS[name] for name in ways}
    cases = [
        {**case, "name": f"{case['name']} {bed.rate} x {hosts}", "ways": {**asked, "chosen": {}}}
        for case in predict_cases(bed.rate, models)
    ]
    return bed.run(part, hosts, cases) if cases else []


def ddp_rows(bed: Bed) -> list[Row]:
    """A net whose reductions are small beside its compute: plain DDP is best, and a plan must cost nothing."""
    case = {"name": "ddp best", "layers": 8, "bytes": 2 * MIB, "compute_s": 0.5, "passes": 1, "rounds": 3}
    return bed.run("ddp", 4, [{**case, "ways": {"ddp": {}, "chosen": {}}}])


def bound_rows(bed: Bed) -> list[Row]:
    return [bed.bound(4, operation, 16 * MIB) for operation in ("all_gather", "reduce_scatter")]


def part_rows(bed: Bed, part: str, options: argparse.Namespace) -> Iterator[list[Row]]:
    """Measure one part on a cluster; yield rows as they come."""
    if part in AT_EVERY_RATE:
        models = [name for name in (MENDED_ON if part == "predict" else UNSEEN) if name in options.models]
        for hosts in options.hosts:
            yield predict_rows(bed, part, hosts, models, options.ways)
    elif part == "share":
        for ratio in options.ratios:
            yield share_rows(bed, [ratio], not options.no_rivals)
    else:
        yield {"budget": budget_rows, "ddp": ddp_rows, "bound": bound_rows}[part](bed)


def made_s() -> float:
    """Seconds of this process that a plan for a 7B model on 64 hosts of 8 takes."""
    began = time.process_time()
    choose(transformer_step("7b", "h100", passes=8), simulated_cluster(64, 8, "h100", parse_rate("100Gb")))
    return time.process_time() - began


def scaling_figures() -> dict[str, float]:
    found = {}
    for published in PUBLISHED:
        predicted = efficiency(published)
        said = f"{predicted:.3f} published {published.efficiency:.2f}"
        print(f"scaling   {published.name:<46} {said}", file=sys.stderr)
        found[f"scaling-{published.key}"] = 100 * abs(predicted / published.efficiency - 1)
    return found | {"scaling-ddl-plan": 100 * planned_efficiency(PUBLISHED[0])}


ON_THE_CLUSTER = ("share", "budget", "ddp", "bound", "predict", "unseen")
AT_EVERY_RATE = ("predict", "unseen")


def options_from(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = (*ON_THE_CLUSTER, "made", "scaling")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--ratios", nargs="+", type=float, default=[4, 2, 1, 0.5], help="of share")
    parser.add_argument(
        "--no-rivals", action="store_true", help="of share: leave out FSDP2 on Gloo, the slow one"
    )
    parser.add_argument("--rates", nargs="+", choices=tuple(RATES), default=list(RATES), help="of predict")
    parser.add_argument("--hosts", nargs="+", type=int, choices=(2, 4), default=[2, 4], help="of predict")
    parser.add_argument("--models", nargs="+", choices=tuple(MODELS), default=list(MODELS), help="of predict")
    parser.add_argument("--ways", nargs="+", choices=tuple(WAYS), default=list(WAYS), help="of predict")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="add to the rows of this file")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


def measured_rows(options: argparse.Namespace) -> Iterator[list[Row]]:
    """Measure what was asked for on a virtual cluster for each rate; yield rows as they come."""
    wanted = [part for part in ON_THE_CLUSTER if part in options.only]
    if wanted and (why := missing()):
        print(f"the rows of the virtual cluster need root: {why}", file=sys.stderr)
        return
    for rate in RATES:
        parts = [
            part for part in wanted if (rate in options.rates if part in AT_EVERY_RATE else rate == "1gbit")
        ]
        if not parts:
            continue
        with tempfile.TemporaryDirectory() as folder, VirtualCluster(4, rate=rate) as cluster:
            bed = Bed(cluster, Path(folder), rate)
            for part in parts:
                for found in part_rows(bed, part, options):
                    for row in found:
                        _print_row(row)
                    yield found


def main() -> int:
    options = options_from(sys.argv[1:])
    print(f"load {os.getloadavg()[0]:.1f} before", file=sys.stderr)
    rows = read_rows(options.rows)
    for found in measured_rows(options):
        rows = replaced(rows, found)
        if options.rows:  # at once: a run that is ended keeps what it has measured
            write_rows(options.rows, rows)
    measured = figures(rows)
    if "made" in options.only:
        measured["made"] = made_s()
    if "scaling" in options.only:
        measured |= scaling_figures()
    if options.json:
        print(json.dumps({"rows": rows, "figures": measured}, indent=2))
    else:
        print(claims.report("plan", measured))
    return 0


def _print_row(row: Row) -> None:
    predicted = f"{row['predicted_s']:.3f} ({error(row):+.0%})" if row["predicted_s"] else "-"
    share = row["compute_s"] / row["measured_s"]
    print(
        f"{row['part']:<8} {row['case']:<18} {row['name']:<10} {row['measured_s']:.3f} s, predicted {predicted}, "
        f"computing {share:.0%}: {row['way']}",
        file=sys.stderr,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
