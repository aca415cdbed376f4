"""Random faults, one and two at a time, while an elastic run trains, heals, takes in, saves and ends.

    python benchmarks/faults.py                       100 faults
    python benchmarks/faults.py --count 20 --seed 7
    python benchmarks/faults.py --only kill2 --moments training
    python benchmarks/faults.py --keep FOLDER         keep logs; those of runs that went wrong are always kept
    python benchmarks/faults.py --json

A run has three workers, and a script of its own (`faults_harness/script.py`) with BatchNorm, dropout, AdamW and a
scheduler. It is judged by what that script wrote down: every sample once in an epoch, parameters equal on all workers,
no committed step lost. After it no process and no shared memory may be left. The time to recover is that from the
last signal of a fault to the commit of a new step; the second signal of a pair comes within 0.3 s of the first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import claims
from benchmarks.faults_harness.episode import Episode, HangError
from benchmarks.faults_harness.judge import Verdict, judge
from benchmarks.faults_harness.script import BATCH, SAMPLES
from benchmarks.recovery_harness.measure import percentile

WORKERS = 3
STEPS_PER_EPOCH = -(-SAMPLES // BATCH)
GAP_S = 0.3  # at most, between the two signals of a pair
MOST_WRONG = 5  # runs that went wrong, after which a campaign ends
ENDING_STEPS = 6  # before the last one

# Signals of each kind of fault, in their order; each goes to another worker.
KINDS: dict[str, tuple[signal.Signals, ...]] = {
    "kill": (signal.SIGKILL,),
    "stop": (signal.SIGSTOP,),
    "term": (signal.SIGTERM,),
    "kill2": (signal.SIGKILL, signal.SIGKILL),
    "kill+stop": (signal.SIGKILL, signal.SIGSTOP),
    "stop+kill": (signal.SIGSTOP, signal.SIGKILL),
    "term+kill": (signal.SIGTERM, signal.SIGKILL),
}
WEIGHTS = {"kill": 4, "stop": 1, "term": 1, "kill2": 8, "kill+stop": 1, "stop+kill": 1, "term+kill": 2}


@dataclass(frozen=True)
class FaultOutcome:
    """One fault, and how long it took until a new step was committed."""

    kind: str
    moment: str
    step: int  # the last one that was committed before it
    recovered_s: float | None  # None: the run hung, or there was no step left to commit


@dataclass(frozen=True)
class EpisodeOutcome:
    """One run, with the faults done to it."""

    folder: str
    faults: tuple[FaultOutcome, ...]
    code: int | None  # None: it did not end
    verdict: Verdict
    processes_left: int
    shared_memory_left: int
    hangs: int

    @property
    def sound(self) -> bool:
        left = self.processes_left + self.shared_memory_left
        return self.code == 0 and self.verdict.sound and not left and not self.hangs


@dataclass
class Campaign:
    """The faults that are left to do, and the choices at random."""

    left: int
    dice: random.Random
    kinds: Sequence[str]
    moments: Sequence[str]
    epochs: int
    step_ms: float
    outcomes: list[EpisodeOutcome] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        return self.epochs * STEPS_PER_EPOCH - 1

    def run(self, folder: Path) -> EpisodeOutcome:
        """Do faults to one run until it is about to end, then to its end."""
        episode = Episode(folder, workers=WORKERS, epochs=self.epochs, step_ms=self.step_ms)
        faults: list[FaultOutcome] = []
        hangs = 0
        try:
            while self.left > 0 and not episode.ended:
                fault = self._fault(episode)
                if fault is None:
                    break
                faults.append(fault)
                self.left -= 1
                print(f"  {fault}", file=sys.stderr, flush=True)
        except HangError:
            hangs += 1
            episode.dump_stacks()
        code = episode.end() if not hangs else None
        if code is None:
            episode.dump_stacks()
        hangs += code is None and not hangs
        time.sleep(0.5)
        left = len(episode.left()) if code is not None else 0
        episode.kill_all()
        return EpisodeOutcome(
            folder=str(folder),
            faults=tuple(faults),
            code=code,
            verdict=judge(episode.lines, SAMPLES),
            processes_left=left,
            shared_memory_left=len(episode.shared_memory_left()),
            hangs=hangs,
        )

    def _fault(self, episode: Episode) -> FaultOutcome | None:
        """Do one fault at a moment of its kind, and wait until a new step is committed; None if the run ends."""
        kind = self.dice.choices(self.kinds, [WEIGHTS[kind] for kind in self.kinds])[0]
        moment = self._choose_moment(episode)
        MOMENTS[moment](self, episode)
        if episode.ended or episode.last_step >= self.last_step:
            return None  # a worker that is killed after its last step has failed: its script may have had more to do
        when = self._strike(episode, KINDS[kind])
        episode.read()
        before = max((line.step for line in episode.applied if line.t <= when), default=-1)
        if before >= self.last_step - 1:
            return FaultOutcome(kind, moment, before, None)
        committed = episode.wait_for_commit(before)
        return FaultOutcome(kind, moment, before, round(max(0.0, committed - when), 3))

    def _choose_moment(self, episode: Episode) -> str:
        """Choose a moment; the last fault of a run is done while it ends."""
        before_the_end = [moment for moment in self.moments if moment != "ending"]
        ends_soon = episode.last_step > self.last_step - STEPS_PER_EPOCH
        if "ending" in self.moments and (ends_soon or not before_the_end):
            return "ending"
        return self.dice.choice(before_the_end)

    def _strike(self, episode: Episode, signals: Sequence[signal.Signals]) -> float:
        """Send the signals, each to another worker; return the time of the last."""
        victims = self._choose_victims(episode, len(signals))
        for index, (victim, number) in enumerate(zip(victims, signals, strict=False)):
            if index:
                time.sleep(self.dice.uniform(0.0, GAP_S))
            with suppress(ProcessLookupError):
                os.kill(victim, number)
        return time.time()

    def _choose_victims(self, episode: Episode, count: int) -> list[int]:
        """Choose workers to harm, all but one that holds the newest commit: nothing could bring that back."""
        members = episode.members()
        spared = self.dice.choice(members) if members else None
        others = [pid for pid in episode.alive() if pid != spared]
        return self.dice.sample(others, min(count, len(others)))

    # -- moments ----------------------------------------------------------------------------------

    def training(self, episode: Episode) -> None:
        episode.wait_for_all()
        time.sleep(self.dice.uniform(0.0, 3 * self.step_ms / 1000))

    def joining(self, episode: Episode) -> None:
        """A newcomer has asked to take part, after another worker was lost."""
        self._lose_one(episode, "detected", "join")

    def healing(self, episode: Episode) -> None:
        """A newcomer is in the group of its first view, and gets the state."""
        self._lose_one(episode, "agreed", "join")
        time.sleep(self.dice.uniform(0.0, 0.1))

    def saving(self, episode: Episode) -> None:
        episode.wait_for_all()
        step = episode.last_step
        episode.wait(lambda: any(s % 20 >= 18 for s in range(step, episode.last_step + 1)))

    def ending(self, episode: Episode) -> None:
        episode.wait_for_all()
        episode.wait(lambda: episode.last_step >= self.last_step - ENDING_STEPS)
        time.sleep(self.dice.uniform(0.0, ENDING_STEPS * self.step_ms / 1000))

    def _lose_one(self, episode: Episode, event: str, kind: str) -> None:
        episode.wait_for_all()
        if episode.ended:
            return
        seen = len(episode.events())
        self._strike(episode, (signal.SIGKILL,))
        episode.wait(
            lambda: any(e["event"] == event and e.get("kind") == kind for e in episode.events()[seen:])
        )


MOMENTS: dict[str, Callable[[Campaign, Episode], None]] = {
    "training": Campaign.training,
    "joining": Campaign.joining,
    "healing": Campaign.healing,
    "saving": Campaign.saving,
    "ending": Campaign.ending,
}


def figures(outcomes: Sequence[EpisodeOutcome]) -> dict[str, float]:
    """The figures of the table of claims."""
    faults = [fault for outcome in outcomes for fault in outcome.faults]
    found: dict[str, float] = {
        "faults": len(faults),
        "hangs": sum(outcome.hangs for outcome in outcomes),
        "failed": sum(outcome.code != 0 for outcome in outcomes),
        "lost": sum(o.verdict.lost + o.verdict.missing for o in outcomes if o.code == 0),
        "doubled": sum(outcome.verdict.doubled for outcome in outcomes),
        "different": sum(outcome.verdict.different for outcome in outcomes),
        "left": sum(outcome.processes_left + outcome.shared_memory_left for outcome in outcomes),
    }
    for name, kinds in (("single", ("kill",)), ("double", ("kill2",))):
        times = [f.recovered_s for f in faults if f.kind in kinds and f.recovered_s is not None]
        if times:
            found |= {name: percentile(times, 0.5), f"{name}-p95": percentile(times, 0.95)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--moments", nargs="+", choices=MOMENTS, default=list(MOMENTS), metavar="MOMENT")
    parser.add_argument("--epochs", type=int, default=15, help="of a run, 40 steps each")
    parser.add_argument("--step-ms", type=float, default=50.0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    campaign = Campaign(
        asked.count, random.Random(asked.seed), asked.only, asked.moments, asked.epochs, asked.step_ms
    )
    folder = asked.keep or Path(tempfile.mkdtemp(prefix="weft-faults-"))
    while campaign.left > 0 and sum(not outcome.sound for outcome in campaign.outcomes) < MOST_WRONG:
        outcome = campaign.run(folder / f"run-{len(campaign.outcomes)}")
        campaign.outcomes.append(outcome)
        verdict = "sound" if outcome.sound else f"WRONG: {outcome}"
        print(f"{outcome.folder}: {len(outcome.faults)} faults, {verdict}", file=sys.stderr, flush=True)
        if outcome.sound and asked.keep is None:
            shutil.rmtree(outcome.folder)
    if asked.json:
        print(json.dumps([asdict(outcome) for outcome in campaign.outcomes], indent=2))
    else:
        print(claims.report("faults", figures(campaign.outcomes)), end="")
    return 0 if all(outcome.sound for outcome in campaign.outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
