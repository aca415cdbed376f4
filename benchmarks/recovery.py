"""How long training stands still after a fault: ours against torchrun and torchft, in turns, the same step for all.

    python benchmarks/recovery.py                              every row, ten trials each: hours, so choose
    python benchmarks/recovery.py --list
    python benchmarks/recovery.py --only kill stop --systems weft torchft --trials 3
    python benchmarks/recovery.py --torchft-python PATH        the interpreter of an environment that has torchft
    python benchmarks/recovery.py --json

A trial starts a system anew, waits until all its workers step together, does the fault while they compute, and takes
the time to the next commit by those who live of a step that was not committed before. Systems take turns within each
trial. One that does not recover within --patience is tried twice only. p95 is the nearest rank: of ten, the longest.
"first" is the time to any commit, of a step done again as well; "redone" are steps, "lost" and "twice" samples.
"torchrun, tuned" gives every restart a store of its own and waits 1 s for more hosts instead of 30; "torchft, tuned"
has a heartbeat of 500 ms, waits 100 ms for others to join, and 1 s for a reduction.
Rivals' hosts are agents on the loopback, ours are those of the virtual cluster (root): there a lost one says nothing.
torchft has an environment of its own, which takes torch from this one. Its release 0.2.0 is no use: when a reduction
breaks, an assertion in its DDP ends the survivors too; the nightly build has that mended.

    python -m venv ft
    echo "import site; site.addsitedir('SITE-PACKAGES OF THIS ONE')" > $(echo ft/lib/python3*/site-packages)/base.pth
    ft/bin/pip install --no-deps torchft-nightly
    ft/bin/pip install opentelemetry-api opentelemetry-sdk opentelemetry-exporter-otlp-proto-http
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims
from benchmarks.recovery_harness.measure import (
    Samples,
    account,
    longest_pause_s,
    percentile,
    recovery,
    step_s,
)
from benchmarks.recovery_harness.systems import Job, System, systems, versions
from benchmarks.recovery_harness.trial import Trial, TrialError, kill, stick, stop

OURS, PLAIN = "weft", "ddp, weft"
HOPELESS = 2  # trials after which one that never recovers is left alone
TOGETHER = 5  # steps with a newcomer before the join counts as done


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one trial gave. `value_s` is infinite if the patience ended first, and missing if the trial failed."""

    row: str
    system: str
    value_s: float | None = None
    first_s: float | None = None  # to the first commit, of a step that had been committed before as well
    redone: int | None = None
    samples: Samples | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What all rows share."""

    workers: int
    warm: int  # steps before the fault
    patience_s: float
    start_patience_s: float
    cost_steps: int
    epoch_steps: int
    job: Job  # of one host

    @property
    def on_hosts(self) -> Job:
        return replace(self.job, hosts=self.workers, per_host=1, most=self.workers)


Harm = Callable[[Trial, Sequence[int]], float]  # does it to these processes, and says when


def strike(
    setup: Setup, system: System, trial: Trial, harm: Harm | None, step: int
) -> tuple[float, list[int]]:
    """Harm the last worker, or lose the last host, just after a step from this one on: when, and whom.

    The victim has not yet reduced the gradients of the next step, so that step needs the recovery.
    """
    for _ in range(100):
        commits = trial.wait_in_step(setup.workers, step, setup.start_patience_s)
        if time.time() - min(commit.t for commit in commits) < setup.job.step_ms / 2000:
            if harm is None:
                return system.lose_host(trial), []
            victim = trial.last[max(trial.last)].pid
            return harm(trial, [victim]), [victim]
        step = trial.steps[0] + 1
    raise TrialError("the machine is too busy to hit a worker while it computes; try a longer --step-ms")


def faulty(setup: Setup, system: System, trial: Trial, *, row: str, harm: Harm | None) -> Outcome:
    """A fault, to a worker or without `harm` to a host: the time to the next step."""
    system.start(trial, setup.on_hosts if harm is None else setup.job)
    when, victims = strike(setup, system, trial, harm, setup.warm)
    outcome = Outcome(row=row, system=system.name, value_s=math.inf)
    try:
        trial.wait(
            lambda: recovery(trial.read(), when, victims) is not None or trial.ended,
            when + setup.patience_s - time.time(),
            "step after the fault",
        )
    except TrialError:
        return outcome
    time.sleep(0.1)  # for the lines of those who were a little earlier and are read a little later
    found = recovery(trial.read(), when, victims)
    if found is None:
        return replace(outcome, note=f"all ended {time.time() - when:.1f} s after the fault; {trial.said()}")
    return replace(outcome, value_s=found.next_s, first_s=found.first_s, redone=found.redone)


def join(setup: Setup, system: System, trial: Trial) -> Outcome:
    """A host comes late: the longest pause of the others."""
    few = setup.workers - 1
    system.start(trial, replace(setup.on_hosts, hosts=few))
    trial.wait_in_step(few, setup.warm, setup.start_patience_s)
    when = time.time()
    system.add_host(trial, replace(setup.on_hosts, hosts=few))
    outcome = Outcome(row="join", system=system.name, value_s=math.inf)
    try:
        trial.wait_in_step(setup.workers, 0, setup.patience_s)
        trial.wait_in_step(setup.workers, min(trial.steps) + TOGETHER, setup.patience_s)
    except TrialError:
        pause = longest_pause_s(trial.read(), when, until=time.time())
        return replace(outcome, note=f"not let in; the others paused {pause:.2f} s at most")
    return replace(outcome, value_s=longest_pause_s(trial.read(), when, until=time.time()))


def samples(setup: Setup, system: System, trial: Trial) -> Outcome:
    """A worker is killed at half an epoch: samples that no step of it consumed, and that several did."""
    job = replace(setup.job, steps=setup.epoch_steps)
    system.start(trial, job)
    half = job.steps // 2 + job.checkpoint_every // 2
    when, victims = strike(setup, system, trial, kill, half)
    limit_s = setup.patience_s + 3 * job.steps * job.step_ms / 1000

    def over() -> bool:
        trial.read()
        return max(trial.steps) >= job.steps or trial.ended

    trial.wait(over, limit_s, "end of the epoch")
    time.sleep(2 * job.step_ms / 1000 + 0.5)  # for the others' lines of the last step
    found = recovery(trial.read(), when, victims)
    return Outcome(
        row="samples",
        system=system.name,
        value_s=found.next_s if found else math.inf,
        redone=found.redone if found else None,
        samples=account(trial.commits, trial.starts, job.samples),
    )


def cost(setup: Setup, system: System, trial: Trial) -> Outcome:
    """Nothing fails: the median step."""
    system.start(trial, setup.job)
    trial.wait_in_step(setup.workers, setup.warm + setup.cost_steps, setup.start_patience_s)
    return Outcome(row="cost", system=system.name, value_s=step_s(trial.commits, setup.warm))


Row = Callable[[Setup, System, Trial], Outcome]
ROWS: dict[str, tuple[str, Row]] = {
    "kill": ("worker SIGKILL", partial(faulty, row="kill", harm=kill)),
    "stop": ("worker SIGSTOP", partial(faulty, row="stop", harm=stop)),
    "stuck": ("main thread stuck", partial(faulty, row="stuck", harm=stick)),
    "host": ("host lost", partial(faulty, row="host", harm=None)),
    "join": ("late joiner, pause", join),
    "samples": ("samples after a kill", samples),
    "cost": ("step, nothing fails", cost),
}
# What ours must reach: p50 and p95 in seconds; no sample lost or seen twice; a step that costs little more than DDP's.
GOALS = {"kill": (0.6, 1.2), "stop": (2.5, 2.5), "stuck": (2.5, 2.5), "host": (1.5, 1.5), "join": (1.0, 1.0)}
MOST_COST = 1.03


def attempt(name: str, setup: Setup, system: System, folder: Path) -> Outcome:
    try:
        with Trial(folder, polite=system.polite) as trial:
            return ROWS[name][1](setup, system, trial)
    except TrialError as error:
        return Outcome(row=name, system=system.name, note=f"failed: {error}")


def measure(
    name: str, setup: Setup, tried: Sequence[System], trials: int, folder: Path, keep: bool
) -> Iterator[Outcome]:
    """The trials of a row, systems in turns; those that cannot, or never do, drop out."""
    left = []
    for system in tried:
        if why := system.missing(name):
            yield Outcome(row=name, system=system.name, note=why)
        else:
            left.append(system)
    lost = dict.fromkeys((system.name for system in left), 0)
    for number in range(trials):
        for system in left:
            if lost[system.name] >= HOPELESS:
                continue
            place = folder / f"{name}-{system.name.replace(', ', '-')}-{number}"
            outcome = attempt(name, setup, system, place)
            if outcome.value_s is None or math.isinf(outcome.value_s):
                lost[system.name] += 1
            if not keep:
                shutil.rmtree(place)
            yield outcome


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A line of the table: a system in a row."""

    row: str
    system: str
    trials: int
    p50_s: float | None
    p95_s: float | None
    first_s: float | None
    redone: float | None
    lost: float | None  # shares of the epoch
    twice: float | None
    note: str
    ratio: float | None = None  # of the p50 to that of ours
    met: bool | None = None


def summarise(row: str, system: str, outcomes: Sequence[Outcome]) -> Summary:
    values = [outcome.value_s for outcome in outcomes if outcome.value_s is not None]
    firsts = [outcome.first_s for outcome in outcomes if outcome.first_s is not None]
    redone = [outcome.redone for outcome in outcomes if outcome.redone is not None]
    epochs = [outcome.samples for outcome in outcomes if outcome.samples is not None]
    return Summary(
        row=row,
        system=system,
        trials=len(values),
        p50_s=percentile(values, 0.5) if values else None,
        p95_s=percentile(values, 0.95) if values else None,
        first_s=percentile(firsts, 0.5) if firsts else None,
        redone=statistics.mean(redone) if redone else None,
        lost=statistics.mean(epoch.lost / epoch.total for epoch in epochs) if epochs else None,
        twice=statistics.mean(epoch.twice / epoch.total for epoch in epochs) if epochs else None,
        note="; ".join(dict.fromkeys(outcome.note for outcome in outcomes if outcome.note)),
    )


def summaries(row: str, outcomes: Sequence[Outcome]) -> list[Summary]:
    """Of each system in the row, in the order they came, compared with ours."""
    by_system: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_system.setdefault(outcome.system, []).append(outcome)
    lines = {system: summarise(row, system, found) for system, found in by_system.items()}
    ours = lines.get(OURS)
    if ours is None or ours.p50_s is None:
        return list(lines.values())
    lines[OURS] = replace(ours, met=goal_met(ours, lines.get(PLAIN)))
    return [replace(line, ratio=line.p50_s / ours.p50_s if line.p50_s else None) for line in lines.values()]


def goal_met(ours: Summary, plain: Summary | None) -> bool | None:
    """Whether ours is as good as it must be; None where nothing was asked, or there is nothing to compare with."""
    assert ours.p50_s is not None
    assert ours.p95_s is not None
    if ours.row == "samples":
        return not (ours.redone or ours.lost or ours.twice)
    if ours.row == "cost":
        return ours.p50_s <= MOST_COST * plain.p50_s if plain is not None and plain.p50_s else None
    return ours.p50_s <= GOALS[ours.row][0] and ours.p95_s <= GOALS[ours.row][1]


HEAD = (
    f"{'row':<21} {'system':<16} {'n':>3} {'p50 s':>8} {'p95 s':>8} {'first s':>8} {'redone':>7} "
    f"{'lost':>7} {'twice':>7} {'/ ours':>7}"
)


def render(line: Summary, patience_s: float) -> str:
    def seconds(value: float | None) -> str:
        if value is None:
            return ""
        return f"> {patience_s:g}" if math.isinf(value) else f"{value:.3f}"

    def number(value: float | None, form: str) -> str:
        return "" if value is None or math.isinf(value) else format(value, form)

    fields = [
        f"{ROWS[line.row][0]:<21} {line.system:<16} {line.trials:>3}",
        *(f"{seconds(value):>8}" for value in (line.p50_s, line.p95_s, line.first_s)),
        f"{number(line.redone, '.1f'):>7} {number(line.lost, '.1%'):>7} {number(line.twice, '.1%'):>7}",
        f"{number(line.ratio, '.2f'):>7}",
        {True: "met", False: "missed", None: ""}[line.met],
        line.note,
    ]
    return " ".join(fields).rstrip()


def figures(lines: Sequence[Summary]) -> dict[str, float]:
    """Return the claimed figures of ours, as far as they were measured."""
    ours = {line.row: line for line in lines if line.system == OURS and line.p50_s is not None}
    plain = next((line.p50_s for line in lines if line.system == PLAIN and line.row == "cost"), None)
    found = {row: line.p50_s for row, line in ours.items() if row not in ("cost", "samples")}
    found["kill-p95"] = ours["kill"].p95_s if "kill" in ours else None
    found["cost"] = (ours["cost"].p50_s or 0.0) / plain if plain and "cost" in ours else None
    return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


def finite(value: object) -> object:
    """JSON knows no infinity: a time that the patience did not see the end of is null there, its trial still counts."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and math.isinf(value) else value


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=list(ROWS), metavar="ROW", help="measure these rows")
    parser.add_argument("--systems", nargs="+", metavar="NAME", help="try these, as --list names them")
    parser.add_argument("--list", action="store_true", help="name rows and systems, and what is missing here")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--workers", type=int, default=3, help="with 2, torchft gives up if one is stuck")
    parser.add_argument("--step-ms", type=float, default=100.0, help="compute in a step")
    parser.add_argument("--size", type=float, default=4.0, metavar="MIB", help="of the parameters")
    parser.add_argument("--warm", type=int, default=15, metavar="STEPS", help="before the fault")
    parser.add_argument("--checkpoint-every", type=int, default=10, metavar="STEPS", help="for torchrun")
    parser.add_argument("--epoch-steps", type=int, default=200, help="in the row samples")
    parser.add_argument("--cost-steps", type=int, default=100, help="a trial of the row cost")
    parser.add_argument(
        "--patience", type=float, default=60.0, metavar="S", help="with one that does not recover"
    )
    parser.add_argument(
        "--start-patience", type=float, default=180.0, metavar="S", help="until all step together"
    )
    parser.add_argument("--torchft-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep records and logs of the trials here")
    parser.add_argument("--json", action="store_true", help="print summaries and trials as data")
    options = parser.parse_args()
    known = systems(options.torchft_python)
    if unknown := set(options.systems or ()) - {system.name for system in known}:
        parser.error(f"unknown {', '.join(unknown)}; there are {', '.join(system.name for system in known)}")
    if options.list:
        for name, (what, _) in ROWS.items():
            print(f"{name:<10} {what}")
            for system in known:
                if name in system.rows:
                    print(f"           - {system.name:<16} {system.missing(name)}".rstrip())
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started ends too
    job = Job(
        hosts=1,
        per_host=options.workers,
        most=1,
        step_ms=options.step_ms,
        size_mib=options.size,
        checkpoint_every=options.checkpoint_every,
    )
    setup = Setup(
        workers=options.workers,
        warm=options.warm,
        patience_s=options.patience,
        start_patience_s=options.start_patience,
        cost_steps=options.cost_steps,
        epoch_steps=options.epoch_steps,
        job=job,
    )
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    machine += f", {versions(options.torchft_python)}"
    about = f"{date.today()}, {machine}, load {os.getloadavg()[0]:.1f} before"
    asked = f"{options.workers} workers, step {options.step_ms:g} ms, {options.size:g} MiB of parameters"
    if not options.json:
        print(
            f"# python benchmarks/recovery.py {' '.join(sys.argv[1:])}\n{about}; {asked}\n{HEAD}", flush=True
        )
    outcomes: list[Outcome] = []
    lines: list[Summary] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary)).resolve()
        for name in options.only or ROWS:
            tried = [system for system in known if name in system.rows]
            tried = [system for system in tried if not options.systems or system.name in options.systems]
            found = []
            for outcome in measure(name, setup, tried, options.trials, folder, bool(options.keep)):
                found.append(outcome)
                value = "" if outcome.value_s is None else f"{outcome.value_s:.3f} s"
                print(f"{name}, {outcome.system}: {value} {outcome.note}", file=sys.stderr, flush=True)
            outcomes += found
            lines += summaries(name, found)
            if not options.json:
                for line in lines[-len({outcome.system for outcome in found}) :]:
                    print(render(line, options.patience), flush=True)
    if not options.json:
        print("\n" + claims.report("recovery", figures(lines)), end="")
    if options.json:
        data = {"about": f"{about}; {asked}", "patience_s": options.patience}
        data |= {"summaries": [finite(asdict(line)) for line in lines]}
        data |= {"trials": [finite(asdict(outcome)) for outcome in outcomes]}
        print(json.dumps(data, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
