"""The campaign of faults: which harm is done to whom at which moment, at random, and what became of each run."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.faults_harness.episode import SIGNALS, Episode, HangError
from benchmarks.faults_harness.judge import Verdict, ended_too_late, judge
from benchmarks.faults_harness.script import SAMPLES, STEPS_PER_EPOCH

GAP_S = 0.3  # at most, between the two harms of a pair
ENDING_STEPS = 6  # before the last one
AWAY_S = 6.0  # at most, until a host that was cut off or without power is back

# What each kind of fault does, in its order, each to another worker; and how often it is chosen.
LOCAL_KINDS: dict[str, tuple[tuple[str, ...], int]] = {
    "kill": (("kill",), 4),
    "stop": (("stop",), 1),
    "term": (("term",), 1),
    "kill2": (("kill", "kill"), 8),
    "kill+stop": (("kill", "stop"), 1),
    "stop+kill": (("stop", "kill"), 1),
    "term+kill": (("term", "kill"), 2),
}
HOST_KINDS: dict[str, tuple[tuple[str, ...], int]] = {
    "kill": (("kill",), 2),
    "kill2": (("kill", "kill"), 3),
    "agent": (("agent",), 2),
    "agent2": (("agent", "agent"), 1),
    "agent+kill": (("agent", "kill"), 1),
    "cut": (("cut",), 2),
    "cut2": (("cut", "cut"), 1),
    "cut+kill": (("cut", "kill"), 1),
    "cut+agent": (("cut", "agent"), 1),
    "power": (("power",), 1),
    "power2": (("power", "power"), 1),
}
DISTANT = ("cut", "power")  # harms that nobody tells of: they are found out by silence


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
    killed_done: bool = False  # a worker was killed after the last step: the run has to fail then

    @property
    def failed(self) -> bool:
        return self.code != 0 and not (self.code == 1 and self.killed_done)

    @property
    def sound(self) -> bool:
        left = self.processes_left + self.shared_memory_left
        return not self.failed and self.verdict.sound and not left and not self.hangs


@dataclass
class Campaign:
    """The faults that are left to do, and the choices at random."""

    left: int
    dice: random.Random
    kinds: Mapping[str, tuple[tuple[str, ...], int]]
    moments: Sequence[str]
    epochs: int
    step_ms: float
    outcomes: list[EpisodeOutcome] = field(default_factory=list)

    @property
    def last_step(self) -> int:
        return self.epochs * STEPS_PER_EPOCH - 1

    def run(self, episode: Episode) -> EpisodeOutcome:
        """Do faults to one run until it is about to end, then to its end."""
        faults: list[FaultOutcome] = []
        hangs = 0
        try:
            while self.left > 0 and not episode.ended:
                new = 0
                for fault in self._faults(episode):
                    faults.append(fault)
                    new += 1
                    self.left -= 1
                    print(f"  {fault}", file=sys.stderr, flush=True)
                if not new:
                    break
        except HangError:
            hangs += 1
            episode.dump_stacks()
        code = episode.end() if not hangs else None
        if code is None:
            episode.dump_stacks()
        hangs += code is None and not hangs
        time.sleep(0.5)
        left = episode.left() if code is not None else []
        shared = episode.shared_memory_left()
        if left or shared:
            print(f"left: {left} {shared}", file=sys.stderr, flush=True)
        episode.close()
        outcome = EpisodeOutcome(
            folder=str(episode.folder),
            faults=tuple(faults),
            code=code,
            verdict=judge(episode.lines, SAMPLES),
            processes_left=len(left),
            shared_memory_left=len(shared),
            hangs=hangs,
            killed_done=ended_too_late(episode.lines, episode.killed_at, self.last_step),
        )
        self.outcomes.append(outcome)
        return outcome

    def _faults(self, episode: Episode) -> Iterator[FaultOutcome]:
        """Do one fault at a moment of its kind, and wait until a new step is committed; none if the run ends.

        To come to some moments a worker has to be lost first: that is a fault of its own.
        """
        moment = self._choose_moment(episode)
        kind = self.dice.choices([*self.kinds], [often for _, often in self.kinds.values()])[0]
        harms, _ = self.kinds[kind]
        if moment == "reduced" and not SIGNALS.keys() >= {*harms}:
            moment = "training"  # with a host that is on its way back, a majority might be lost
        yield from MOMENTS[moment](self, episode)
        if self._at_end(episode):
            return  # a worker that is killed after its last step has failed: its script may have had more to do
        yield self._recovered(episode, kind, moment, self._strike(episode, harms))
        if any(harm in DISTANT for harm in harms):
            time.sleep(self.dice.uniform(0.0, AWAY_S))
            episode.mend()

    def _at_end(self, episode: Episode) -> bool:
        episode.read()
        return episode.ended or episode.last_step >= self.last_step

    def _recovered(self, episode: Episode, kind: str, moment: str, when: float) -> FaultOutcome:
        """Wait until a new step is committed after a fault."""
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

    def _strike(self, episode: Episode, harms: Sequence[str]) -> float:
        """Do harm, each to another worker; return the time of the last."""
        victims = self._choose_victims(episode, len(harms))
        for index, (victim, harm) in enumerate(zip(victims, harms, strict=False)):
            if index:
                time.sleep(self.dice.uniform(0.0, GAP_S))
            episode.harm(harm, victim)
        return time.time()

    def _choose_victims(self, episode: Episode, count: int) -> list[str]:
        """Choose workers to harm, all but one that holds the newest commit: nothing could bring that back."""
        members = episode.members()
        spared = self.dice.choice(members) if members else None
        others = [worker for worker in episode.alive() if worker != spared]
        return self.dice.sample(others, min(count, len(others)))

    # -- moments ----------------------------------------------------------------------------------

    def training(self, episode: Episode) -> Iterator[FaultOutcome]:
        episode.wait_for_members(episode.workers)
        time.sleep(self.dice.uniform(0.0, 3 * self.step_ms / 1000))
        yield from ()

    def reduced(self, episode: Episode) -> Iterator[FaultOutcome]:
        """A worker is missing, and its successor is on the way."""
        episode.wait_for_members(2)
        yield from ()

    def joining(self, episode: Episode) -> Iterator[FaultOutcome]:
        """A newcomer has asked to take part, after another worker was lost."""
        yield from self._lose_one(episode, "detected", "join")

    def healing(self, episode: Episode) -> Iterator[FaultOutcome]:
        """A newcomer is in the group of its first view, and gets the state."""
        yield from self._lose_one(episode, "agreed", "join")
        time.sleep(self.dice.uniform(0.0, 0.1))

    def saving(self, episode: Episode) -> Iterator[FaultOutcome]:
        episode.wait_for_members(episode.workers)
        step = episode.last_step
        episode.wait(lambda: any(s % 20 >= 18 for s in range(step, episode.last_step + 1)))
        yield from ()

    def ending(self, episode: Episode) -> Iterator[FaultOutcome]:
        episode.wait_for_members(episode.workers)
        episode.wait(lambda: episode.last_step >= self.last_step - ENDING_STEPS)
        time.sleep(self.dice.uniform(0.0, ENDING_STEPS * self.step_ms / 1000))
        yield from ()

    def _lose_one(self, episode: Episode, event: str, kind: str) -> Iterator[FaultOutcome]:
        episode.wait_for_members(episode.workers)
        if self._at_end(episode):
            return
        seen = len(episode.events())
        yield self._recovered(episode, "kill", "training", self._strike(episode, ("kill",)))
        episode.wait(
            lambda: any(e["event"] == event and e.get("kind") == kind for e in episode.events()[seen:])
        )


MOMENTS: dict[str, Callable[[Campaign, Episode], Iterator[FaultOutcome]]] = {
    "training": Campaign.training,
    "reduced": Campaign.reduced,
    "joining": Campaign.joining,
    "healing": Campaign.healing,
    "saving": Campaign.saving,
    "ending": Campaign.ending,
}
