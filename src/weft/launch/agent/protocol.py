"""The protocol between the launcher and the agent of a host: commands one way, events the other.

    command                                       answered by            meaning
    beat                                                                 the launcher lives
    look      cwd | null, script | null           look                   is the folder there, is the script?
    route     to: [address, ...]                  route                  from which address would the host reach these?
    listen                                        listen                 answer probes on a port of the host's choice
    reach     targets, timeout_s                  reach                  can the host connect to these?
    measure   address, port, seconds              measure                bandwidth and round trip to a peer that listens
    port      port | null                         port                   is this port free; or pick one
    start     attempt, cwd, env, workers, memory  started ... done       start these workers
    watch     run_id                              usage ...              tell every two seconds what the run uses here
    stop      signal, grace_s                                            end the workers, politely, then by force
    become    module                                                     go on as another program on the same streams
    bye                                                                  nothing more will come

An agent sends `beat` twice a second, `survey` at its start if it was asked to, and of its workers `started`, `output`,
`points` (what they logged), `memory` (one is ended for the memory it holds), `exit` and, when the last of them has
gone, `done`. `failed` says that a command could not be carried out.

The messages are named tuples and not those of `weft.messages`: an agent is started on every host of every run, and
importing msgspec takes a third of its start. `wire.py` has their form on the wire, one JSON object a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from weft.launch.agent.survey import Survey

# -- commands -------------------------------------------------------------------------------------


class LauncherBeat(NamedTuple):
    """The launcher lives."""


class FindFiles(NamedTuple):
    """Look for the folder and the script of a run."""

    cwd: str | None
    script: str | None


class FindRoutes(NamedTuple):
    """Find the host's own address on the way to each of some addresses."""

    to: tuple[str, ...]


class OpenProbePort(NamedTuple):
    """Answer probes of other hosts from now on."""


class ProbeTarget(NamedTuple):
    """One address at which a host answers probes."""

    host: str
    address: str
    port: int


class ReachTargets(NamedTuple):
    """Try to connect to some targets, all at once."""

    targets: tuple[ProbeTarget, ...]
    timeout_s: float


class MeasureLink(NamedTuple):
    """Measure the link to a host that answers probes."""

    address: str
    port: int
    seconds: float


class FindPort(NamedTuple):
    """Say whether a port is free, or pick one that is."""

    port: int | None


class WorkerTask(NamedTuple):
    """One process for an agent to start."""

    rank: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    cpus: tuple[int, ...] = ()
    numa: tuple[int, ...] = ()


class StartWorkers(NamedTuple):
    """Start one attempt at a run."""

    attempt: int
    cwd: str
    env: Mapping[str, str]
    workers: tuple[WorkerTask, ...]
    memory_bytes: int = 0  # that each worker may hold; 0: as much as there is


class WatchUsage(NamedTuple):
    """Tell every two seconds what the processes of a run use of this host."""

    run_id: str


class StopWorkers(NamedTuple):
    """Send a signal to all workers, and end by force those that are left after some seconds."""

    signal: int
    grace_s: float


class BecomeProgram(NamedTuple):
    """Go on as another Python module, which has the same standard streams."""

    module: str


class DismissAgent(NamedTuple):
    """End: nothing more will come."""


AgentOrder: TypeAlias = (
    LauncherBeat
    | FindFiles
    | FindRoutes
    | OpenProbePort
    | ReachTargets
    | MeasureLink
    | FindPort
    | StartWorkers
    | WatchUsage
    | StopWorkers
    | BecomeProgram
    | DismissAgent
)

# -- events ---------------------------------------------------------------------------------------


class AgentBeat(NamedTuple):
    """The agent lives."""


class HostSurveyed(NamedTuple):
    """The host, as it describes itself."""

    survey: Survey


class FilesFound(NamedTuple):
    """The files of a run that the host has, and the time on its clock."""

    cwd: bool
    script: bool
    clock_s: float


class RoutesFound(NamedTuple):
    """The host's own address on the way to each address it was asked about; None where there is no way."""

    sources: tuple[str | None, ...]


class ProbePortOpened(NamedTuple):
    """The port on which the agent answers probes."""

    port: int


class ProbeResult(NamedTuple):
    """One try to connect to a host that answers probes."""

    host: str
    address: str
    source: str | None = None  # the address of the caller, as the caller sees it
    seen_as: str | None = None  # the address of the caller, as the called host sees it
    error: str | None = None


class TargetsReached(NamedTuple):
    """The tries to connect to some targets, in the order of the question."""

    results: tuple[ProbeResult, ...]


class LinkMeasured(NamedTuple):
    """The speed of a link to another host, or the error that ended the measurement."""

    mbps: float | None = None
    rtt_ms: float | None = None
    error: str | None = None


class PortFound(NamedTuple):
    """A port of the host, and whether it is free."""

    port: int
    free: bool


class WorkersStarted(NamedTuple):
    """All workers of an attempt run; their process ids in the order of the tasks."""

    attempt: int
    pids: tuple[int, ...]


class WorkerOutput(NamedTuple):
    """A piece of the output of a worker; it may end inside a line, or inside a character.

    Output is bytes of any kind. It travels as text with `surrogateescape`, which gives back the same bytes.
    """

    rank: int
    stream: str  # "out" or "err"
    text: str


class WorkerPoints(NamedTuple):
    """A piece of what a worker logged with `weft.log`, as it stands in a metrics file; it may end inside a line."""

    rank: int
    text: str


class WorkerOverMemory(NamedTuple):
    """A worker is ended because it holds more memory than it may."""

    rank: int
    used_bytes: int
    limit_bytes: int


class HostUsed(NamedTuple):
    """The use that the run made of this host in the last seconds; see `usage.py` for the names of its values."""

    time_ms: int
    values: Mapping[str, float]


class WorkerExited(NamedTuple):
    """A worker has ended, with its exit code or the negative of a signal."""

    rank: int
    code: int


class WorkersDone(NamedTuple):
    """All workers of an attempt have ended, and everything they started."""

    attempt: int


class CommandFailed(NamedTuple):
    """A command could not be carried out; `code` is the exit code of a run that fails for it."""

    during: str
    message: str
    code: int


class AgentClosed(NamedTuple):
    """The agent, or the ssh client in front of it, has ended. The launcher tells itself: this is on no wire."""


class SignalReceived(NamedTuple):
    """The launcher was sent a signal. The launcher tells itself: this is on no wire."""

    number: int


AgentEvent: TypeAlias = (
    AgentBeat
    | HostSurveyed
    | FilesFound
    | RoutesFound
    | ProbePortOpened
    | TargetsReached
    | LinkMeasured
    | PortFound
    | WorkersStarted
    | WorkerOutput
    | WorkerPoints
    | HostUsed
    | WorkerOverMemory
    | WorkerExited
    | WorkersDone
    | CommandFailed
    | AgentClosed
    | SignalReceived
)
