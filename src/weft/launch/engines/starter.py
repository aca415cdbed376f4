"""Carrying out a plan through a program that starts all the workers itself: mpirun, srun.

It runs below an agent on this machine, as one task, so that it never outlives the launcher. What it prints is
parted into what its workers said and how they ended; from there on a run is like any other.
"""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from weft.errors import UsageError
from weft.launch.agent.here import is_this_machine
from weft.launch.agent.processes import sweep
from weft.launch.agent.protocol import WorkerExited, WorkerOutput, WorkerPoints, WorkersDone, WorkerTask
from weft.launch.agent.sweep import marker
from weft.launch.config import LaunchConfig
from weft.launch.control.agents import AgentCommand, AgentPool, PoolEvent
from weft.launch.control.conductor import STARTER, Conductor
from weft.launch.control.console import Console
from weft.launch.control.outcome import Outcome
from weft.launch.engines.local import agent_argv
from weft.launch.engines.marks import Ended, Logged, MarkFinder
from weft.launch.engines.orders import ROOM_BYTES, VARIABLE, Orders, WorkerOrders
from weft.launch.engines.tags import Said, TagStyle, Untagger
from weft.launch.plan import LaunchPlan
from weft.reporting.names import VARIABLE as METRICS_VARIABLE
from weft.reporting.names import file_channel
from weft.secret import VARIABLE as SECRET_VARIABLE
from weft.secret import new_secret

# The starter carries these itself, and may put its own folders before them.
_BY_STARTER = ("PATH", "LD_LIBRARY_PATH")
# What it must carry to the hosts for the interpreter to start; all else is in the orders.
NEEDED = (*_BY_STARTER, "PYTHONPATH", "PYTHONHOME")
# WEFT_RUN_ID marks every process of a run, for a sweep.
TOLD = (VARIABLE, "TORCHELASTIC_RESTART_COUNT", "WEFT_RUN_ID")
# What the starter itself may take to end after the last worker has.
FAREWELL_S = 2.0


def adopt_argv(plan: LaunchPlan) -> tuple[str, ...]:
    """Return what is started for each worker. -P: the user's folder may hold a file named like a module we import."""
    return (plan.python, "-P", "-m", "weft.launch.engines.adopt", "--", *plan.argv)


def carried_names(plan: LaunchPlan) -> tuple[str, ...]:
    """The variables that the starter must carry to every host."""
    return (*(name for name, _ in plan.env if name in NEEDED), *TOLD)


def orders_for(
    plan: LaunchPlan, *, run_id: str, run_dir: Path | None, grace_s: float, pin: bool, reached: bool = False
) -> Orders:
    """Return what the workers of this plan are told; `pin`: their cores too, for the starter does not bind them."""
    env = {name: value for name, value in plan.env if name not in _BY_STARTER}
    env["TORCHELASTIC_RUN_ID"] = run_id
    env[SECRET_VARIABLE] = new_secret()
    if run_dir is not None:
        env["WEFT_RUN_DIR"] = str(run_dir.absolute())
    placed = [(worker, host.name) for host in plan.hosts for worker in host.workers]
    return Orders(
        cwd=plan.cwd,
        env=env,
        grace_s=grace_s,
        memory_bytes=plan.memory_bytes,
        reached=reached,
        workers=tuple(
            WorkerOrders(
                env={**dict(worker.env), **_channel(run_dir, host, worker.rank)},
                cpus=worker.placement.cpus if worker.placement and pin else (),
                numa=worker.placement.numa if worker.placement else (),
            )
            for worker, host in sorted(placed, key=lambda place: place[0].rank)
        ),
    )


def _channel(run_dir: Path | None, host: str, rank: int) -> dict[str, str]:
    """Say where a worker puts what it logs: into the run directory, or from another host into its own output."""
    if run_dir is None:
        return {}
    here = is_this_machine(host)
    return {METRICS_VARIABLE: file_channel(str(run_dir.absolute()), rank) if here else "mark"}


@dataclass(frozen=True, kw_only=True)
class Starter:
    """One call of mpirun or srun, and its ways."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    tags: TagStyle
    polite: Callable[[int], int]  # the signal that makes it give its workers another one
    binds: bool = False  # to the planned cores
    reaches_all: bool = False  # signals whatever a worker started, not only what it started itself


class Translator:
    """Turns the events of a starter into those of its workers; for one run, over all its attempts."""

    def __init__(self, style: TagStyle) -> None:
        self._style = style
        self._begin()

    def _begin(self) -> None:
        self._untaggers = {stream: Untagger(self._style, stream) for stream in ("out", "err")}
        self._marks: defaultdict[int, MarkFinder] = defaultdict(MarkFinder)
        self._own_line = ""
        self._late: list[PoolEvent] = []

    def __call__(self, event: PoolEvent) -> Sequence[PoolEvent]:
        match event:
            case WorkerOutput(rank, stream, text) if rank == STARTER:
                said = self._untaggers[stream].feed(text)
                return [event for piece in said for event in self._events(piece)]
            case WorkerExited(rank) if rank == STARTER:
                # The last words of its workers may still be on their way.
                self._late.append(event)
                return []
            case WorkersDone():
                return [*self._last_events(), event]
            case _:
                return [event]

    def _last_events(self) -> list[PoolEvent]:
        said = [piece for untagger in self._untaggers.values() for piece in untagger.finish()]
        said += [Said(rank, "err", text) for rank, finder in self._marks.items() if (text := finder.finish())]
        events = [event for piece in said for event in self._events(piece)]
        if self._own_line:
            events.append(_output(Said(STARTER, "err", self._own_line + "\n")))
        # Who failed comes before who was ended because of it.
        events += self._late
        self._begin()
        return events

    def _events(self, said: Said) -> Iterator[PoolEvent]:
        if said.rank == STARTER:
            # Whole lines: they stand on the terminal between those of the workers.
            lines, newline, self._own_line = (self._own_line + said.text).rpartition("\n")
            if newline:
                yield _output(Said(STARTER, "err", lines + newline))
            return
        if said.stream == "out":
            yield _output(said)
            return
        for item in self._marks[said.rank].feed(said.text):
            if isinstance(item, Logged):
                yield WorkerPoints(said.rank, item.text)
            elif isinstance(item, Ended):
                event = WorkerExited(said.rank, item.code)
                if item.asked:
                    self._late.append(event)
                else:
                    yield event
            else:
                yield _output(Said(said.rank, said.stream, item))


def _output(said: Said) -> WorkerOutput:
    return WorkerOutput(said.rank, said.stream, said.text)


def run_starter(
    starter: Starter,
    plan: LaunchPlan,
    config: LaunchConfig,
    crew: AgentPool,
    console: Console,
    *,
    run_id: str,
    run_dir: Path | None,
    sweep_host: Callable[[str], object],
) -> Outcome:
    """Run to the end, below one more agent of this crew."""
    orders = orders_for(
        plan,
        run_id=run_id,
        run_dir=run_dir,
        grace_s=config.grace_s,
        pin=not starter.binds,
        reached=starter.reaches_all,
    ).seal()
    if len(orders) > ROOM_BYTES:
        raise UsageError(
            f"the environment of all workers must fit in {ROOM_BYTES} bytes, got {len(orders)} for "
            f"{plan.world_size} workers; unset large variables that are carried, or use --engine ssh"
        )
    console.say("+ " + shlex.join(starter.argv))
    crew.join(AgentCommand(starter.name, agent_argv()))
    task = WorkerTask(STARTER, starter.argv, {VARIABLE: orders, **starter.env})
    conductor = Conductor(
        plan,
        crew,
        {starter.name: (task,)},
        console,
        run_id=run_id,
        run_dir=run_dir,
        grace_s=config.grace_s + FAREWELL_S,
        lost_after_s=config.lost_after_s,
        sweep=lambda host: sweep(marker(run_id)) if host == starter.name else sweep_host(host),
        translate=Translator(starter.tags),
        polite=starter.polite,
    )
    outcome = conductor.run()
    if not outcome.ok and (outcome.failure is None or outcome.failure.rank is not None):
        # The starter does not wait for those that it ended by force. A lost host would not answer.
        with ThreadPoolExecutor(len(plan.hosts)) as pool:
            list(pool.map(sweep_host, [host.name for host in plan.hosts]))
    return outcome
