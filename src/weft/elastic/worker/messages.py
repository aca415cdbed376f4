"""Messages between a worker and the agent of its host: one type each, one JSON object a line.

An agent's messages tell a worker what was decided (`ToWorker`, told apart by `do`); a worker's messages tell the agent
how far it has come (`FromWorker`, told apart by `say`).
"""

from __future__ import annotations

from typing import Any

from weft.elastic.history.records import StepRecord
from weft.elastic.membership.view import View
from weft.messages import Decoder, Message

# -- from the agent -----------------------------------------------------------------------------------


class ToWorker(Message, frozen=True, tag_field="do"):
    """A message of an agent to one of its workers."""


class WelcomeWorker(ToWorker, frozen=True, tag="welcome"):
    """The first message to every worker: its name, the run's secret, and the most workers the run may have."""

    name: str
    secret: str
    most: int


class NewView(ToWorker, frozen=True, tag="view"):
    """A view is decided; `name` is what the worker is called in it, if it is a member."""

    view: View
    name: str
    urgent: bool  # somebody is lost: the end of the step is not waited for


class DrainWorker(ToWorker, frozen=True, tag="drain"):
    """The worker is to leave at the end of its step."""


class PauseWorker(ToWorker, frozen=True, tag="pause"):
    """The run is to end as soon as a step is saved."""


class RunFinished(ToWorker, frozen=True, tag="over"):
    """The other members are done, so there will be no further view."""


# -- from the worker ----------------------------------------------------------------------------------


class FromWorker(Message, frozen=True, tag_field="say"):
    """A message of a worker to its agent."""


class WorkerHello(FromWorker, frozen=True, tag="hello"):
    """The worker has joined; its store and its healing server listen at these ports."""

    store_port: int
    heal_port: int


class DataHeader(FromWorker, frozen=True, tag="header"):
    """The facts that the samples of every step follow from, for the ledger."""

    header: dict[str, Any]


class ReadyToJoin(FromWorker, frozen=True, tag="ready"):
    """The worker waits for a view that it is a member of."""


class GroupFormed(FromWorker, frozen=True, tag="grouped"):
    """The worker has formed the group of a view."""

    view: int


class GroupBroken(FromWorker, frozen=True, tag="broken"):
    """The worker could not form the group of a view, or has lost it."""

    view: int
    why: str


class WorkerHealed(FromWorker, frozen=True, tag="healed"):
    """The worker has the newest state, from other members or from a checkpoint."""

    view: int
    step: int
    bytes: int
    seconds: float
    sources: tuple[str, ...]


class StepCommitted(FromWorker, frozen=True, tag="commit"):
    """A step is permanent; `first`: the first one that the worker has committed in this view."""

    record: StepRecord
    first: bool


class CheckpointSaved(FromWorker, frozen=True, tag="saved", omit_defaults=True):
    """The worker has written its part of a checkpoint."""

    step: int
    bytes: int
    seconds: float
    blocking_s: float  # for which training stood still
    skipped: int = 0  # checkpoints since the last that some member could not write


class WorkerLeaving(FromWorker, frozen=True, tag="leaving"):
    """The worker was asked to leave by a signal."""


class LoopLeft(FromWorker, frozen=True, tag="left"):
    """The script has left its loop before its last epoch, after a number of committed steps of the run."""

    committed: int


class RunRefused(FromWorker, frozen=True, tag="refused"):
    """The run cannot go on with any worker; `code` is the exit code that follows."""

    why: str
    code: int


class WorkerPaused(FromWorker, frozen=True, tag="paused"):
    """All members have saved the last step, and end."""

    step: int


class WorkerFinished(FromWorker, frozen=True, tag="finished"):
    """The worker has done all steps of the run."""


class ScriptEnded(FromWorker, frozen=True, tag="script-ended"):
    """The script has come to its end after the last step; what is left is the end of its interpreter."""


class ScriptIsRun(FromWorker, frozen=True, tag="script-is-run"):
    """The script is done when it ends well, whatever it has committed until then, and the run with it."""


FROM_AGENT: Decoder[ToWorker] = Decoder(WelcomeWorker, NewView, DrainWorker, PauseWorker, RunFinished)
FROM_WORKER: Decoder[FromWorker] = Decoder(
    WorkerHello,
    DataHeader,
    ReadyToJoin,
    GroupFormed,
    GroupBroken,
    WorkerHealed,
    StepCommitted,
    CheckpointSaved,
    WorkerLeaving,
    LoopLeft,
    RunRefused,
    WorkerPaused,
    WorkerFinished,
    ScriptEnded,
    ScriptIsRun,
)
