"""Random faults, one and two at a time, while an elastic run trains, heals, takes in, saves and ends.

    python benchmarks/faults.py                       100 faults to workers of this machine
    python benchmarks/faults.py --hosts 4             to workers, agents, cables and hosts of a virtual cluster
    python benchmarks/faults.py --forks               workers are forks of a process with torch loaded: many more faults a minute
    python benchmarks/faults.py --count 20 --seed 7
    python benchmarks/faults.py --only kill2 --moments training
    python benchmarks/faults.py --keep FOLDER         keep logs; those of runs that went wrong or slowly are always kept
    python benchmarks/faults.py --json
    python benchmarks/faults.py --read A.json B.json  print the claims of campaigns that were run with --json

A run has three workers, or one on each host, and a script of its own (`faults_harness/script.py`) with BatchNorm,
dropout, AdamW and a scheduler. It is judged by what that script wrote down: every sample once in an epoch, parameters
equal on all workers, no committed step lost. After it no process and no shared memory may be left. The time to recover
is that from the last harm of a fault to the commit of a new step; the second harm of a pair comes within 0.3 s of the
first.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims
from benchmarks.faults_harness.campaign import (
    HOST_KINDS,
    LOCAL_KINDS,
    MOMENTS,
    Campaign,
    EpisodeOutcome,
    FaultOutcome,
)
from benchmarks.faults_harness.episode import Episode, LocalEpisode
from benchmarks.faults_harness.hosts import HostsEpisode
from benchmarks.faults_harness.judge import Verdict
from benchmarks.recovery_harness.measure import percentile
from testing.cluster.cluster import VirtualCluster
from testing.forking.hosts import HostForks
from testing.forking.server import ForkServer

WORKERS = 3
MOST_WRONG = 5  # runs that went wrong, after which a campaign ends


def figures(outcomes: Sequence[EpisodeOutcome], prefix: str = "") -> dict[str, float]:
    """The figures of the table of claims."""
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    found: dict[str, float] = {
        "faults": len(faults),
        "hangs": sum(outcome.hangs for outcome in outcomes),
        "failed": sum(outcome.failed for outcome in outcomes),
        "lost": sum(o.verdict.lost + o.verdict.missing for o in outcomes if not o.failed),
        "doubled": sum(outcome.verdict.doubled for outcome in outcomes),
        "different": sum(outcome.verdict.different for outcome in outcomes),
        "left": sum(outcome.processes_left + outcome.shared_memory_left for outcome in outcomes),
    }
    singles = ("kill", "agent", "cut", "power")
    doubles = tuple(kind for kind in (*LOCAL_KINDS, *HOST_KINDS) if "2" in kind or "+" in kind)
    for name, kinds in (
        ("single", singles if prefix else ("kill",)),
        ("double", doubles if prefix else ("kill2",)),
    ):
        times = [f.recovered_s for f in faults if f.kind in kinds and f.recovered_s is not None]
        if times:
            found |= {name: percentile(times, 0.5), f"{name}-p95": percentile(times, 0.95)}
    return {prefix + name: figure for name, figure in found.items()}


def read(files: Sequence[Path]) -> list[EpisodeOutcome]:
    """The outcomes of campaigns that were printed as JSON."""
    rows = [row for file in files for row in json.loads(file.read_text())]
    return [
        EpisodeOutcome(
            **{
                **row,
                "faults": tuple(FaultOutcome(**fault) for fault in row["faults"]),
                "verdict": Verdict(**row["verdict"]),
            }
        )
        for row in rows
    ]


def episodes(asked: argparse.Namespace, stack: ExitStack) -> Callable[[Path], Episode]:
    """Return what starts a run in a folder, with all that it needs."""
    forks = stack.enter_context(ForkServer()).load("torch") if asked.forks else None
    if not asked.hosts:
        return lambda folder: LocalEpisode(
            folder, workers=WORKERS, epochs=asked.epochs, step_ms=asked.step_ms, forks=forks
        )
    cluster = stack.enter_context(VirtualCluster(asked.hosts))
    on_hosts = None if forks is None else stack.enter_context(HostForks(cluster, forks))
    return lambda folder: HostsEpisode(folder, cluster, on_hosts, epochs=asked.epochs, step_ms=asked.step_ms)


def main() -> int:
    kinds = sorted(LOCAL_KINDS | HOST_KINDS)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--hosts", type=int, default=0, metavar="N", help="of a virtual cluster; 0: this machine"
    )
    parser.add_argument("--forks", action="store_true")
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds, metavar="KIND")
    parser.add_argument("--moments", nargs="+", choices=MOMENTS, default=list(MOMENTS), metavar="MOMENT")
    parser.add_argument("--epochs", type=int, default=15, help="of a run, 40 steps each")
    parser.add_argument("--step-ms", type=float, default=50.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--read", nargs="+", type=Path, metavar="FILE")
    asked = parser.parse_args()
    prefix = "hosts-" if asked.hosts else ""
    if asked.read:
        print(claims.report("faults", figures(read(asked.read), prefix)), end="")
        return 0
    known = HOST_KINDS if asked.hosts else LOCAL_KINDS
    chosen = {kind: known[kind] for kind in asked.only if kind in known}
    campaign = Campaign(
        asked.count, random.Random(asked.seed), chosen, asked.moments, asked.epochs, asked.step_ms
    )
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="weft-faults-"))
    with ExitStack() as stack, suppress(KeyboardInterrupt):  # which ends it with the figures so far
        start = episodes(asked, stack)
        while campaign.left > 0 and sum(not outcome.sound for outcome in campaign.outcomes) < MOST_WRONG:
            episode = start(folder / f"run-{len(campaign.outcomes)}")
            stack.callback(episode.close)
            outcome = campaign.run(episode)
            verdict = "sound" if outcome.sound else f"WRONG: {outcome}"
            print(f"{outcome.folder}: {len(outcome.faults)} faults, {verdict}", file=sys.stderr, flush=True)
            if outcome.sound and not episode.slow and asked.keep is None:
                shutil.rmtree(outcome.folder)
    if asked.json:
        print(json.dumps([asdict(outcome) for outcome in campaign.outcomes], indent=2))
    else:
        print(claims.report("faults", figures(campaign.outcomes, prefix)), end="")
    return 0 if all(outcome.sound for outcome in campaign.outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
