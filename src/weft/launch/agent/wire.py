"""The form of an agent's messages on the wire: one JSON object a line, which names its kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from weft.errors import MessageError
from weft.launch.agent.protocol import (
    AgentBeat,
    AgentEvent,
    AgentOrder,
    BecomeProgram,
    CommandFailed,
    DismissAgent,
    FilesFound,
    FindFiles,
    FindPort,
    FindRoutes,
    HostSurveyed,
    HostUsed,
    LauncherBeat,
    LinkMeasured,
    MeasureLink,
    OpenProbePort,
    PortFound,
    ProbePortOpened,
    ProbeResult,
    ProbeTarget,
    ReachTargets,
    RoutesFound,
    StartWorkers,
    StopWorkers,
    TargetsReached,
    WatchUsage,
    WorkerExited,
    WorkerOutput,
    WorkerOverMemory,
    WorkerPoints,
    WorkersDone,
    WorkersStarted,
    WorkerTask,
)

if TYPE_CHECKING:
    from weft.launch.agent.survey import Survey

SHOWN_BYTES = 200  # of a line that cannot be read, in the error

ORDERS: Mapping[str, type[AgentOrder]] = {
    "beat": LauncherBeat,
    "look": FindFiles,
    "route": FindRoutes,
    "listen": OpenProbePort,
    "reach": ReachTargets,
    "measure": MeasureLink,
    "port": FindPort,
    "start": StartWorkers,
    "watch": WatchUsage,
    "stop": StopWorkers,
    "become": BecomeProgram,
    "bye": DismissAgent,
}
EVENTS: Mapping[str, type[AgentEvent]] = {
    "beat": AgentBeat,
    "survey": HostSurveyed,
    "look": FilesFound,
    "route": RoutesFound,
    "listen": ProbePortOpened,
    "reach": TargetsReached,
    "measure": LinkMeasured,
    "port": PortFound,
    "started": WorkersStarted,
    "output": WorkerOutput,
    "points": WorkerPoints,
    "usage": HostUsed,
    "memory": WorkerOverMemory,
    "exit": WorkerExited,
    "done": WorkersDone,
    "failed": CommandFailed,
}
_TAGS = {kind: {"do": tag} for tag, kind in ORDERS.items()} | {
    kind: {"event": tag} for tag, kind in EVENTS.items()
}


def _survey(data: dict[str, Any]) -> Survey:
    from weft.launch.agent.survey import Survey  # only launchers read surveys

    return Survey.from_json(data)


# How a field that is more than plain JSON is read.
_READERS: Mapping[tuple[type, str], Callable[[Any], Any]] = {
    (ReachTargets, "targets"): lambda data: tuple(_build(ProbeTarget, item) for item in data),
    (StartWorkers, "workers"): lambda data: tuple(_build(WorkerTask, item) for item in data),
    (TargetsReached, "results"): lambda data: tuple(_build(ProbeResult, item) for item in data),
    (HostSurveyed, "survey"): _survey,
}
# What a field that is declared so must hold; the others are looked into by their readers, or not at all.
_CHECKED: Mapping[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "tuple[str, ...]": (tuple,),
    "tuple[int, ...]": (tuple,),
    "Mapping[str, str]": (dict,),
    "Mapping[str, float]": (dict,),
}

K = TypeVar("K")


def order_name(order: AgentOrder) -> str:
    """Return the name of a command on the wire."""
    return _TAGS[type(order)]["do"]


def encode(message: AgentOrder | AgentEvent) -> bytes:
    """Return a message as one line, its end included."""
    return json.dumps(_TAGS[type(message)] | _plain(message), separators=(",", ":")).encode() + b"\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "_fields"):
        return {name: _plain(field) for name, field in zip(value._fields, value, strict=True)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.to_json() if hasattr(value, "to_json") else value


def decode_order(line: bytes) -> AgentOrder | None:
    """Return the command in a line; None if the line is none, MessageError if it is a wrong one."""
    return _decode(line, "do", ORDERS)


def decode_event(line: bytes) -> AgentEvent | None:
    """Return the event in a line; None if the line is none (a login shell's greeting), MessageError if it is wrong."""
    return _decode(line, "event", EVENTS)


def _decode(line: bytes, key: str, kinds: Mapping[str, type[K]]) -> K | None:
    if not line.startswith(b"{"):
        return None
    try:
        data = json.loads(line)
    except ValueError:
        return None
    if key not in data:
        return None
    try:
        return _build(kinds[data.pop(key)], data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown = line[:SHOWN_BYTES].decode(errors="replace").rstrip()
        raise MessageError(
            f"a message must be one of {', '.join(kinds)}, with all of its fields, got {shown!r} ({error}); "
            "is the same version of Weft on every host?"
        ) from error


def _build(kind: type[K], data: dict[str, Any]) -> K:
    """Make a message of its fields; the names of all, and the types of plain ones, must be right."""
    return kind(**{name: _field(kind, name, value) for name, value in data.items()})


def _field(kind: type, name: str, value: Any) -> Any:
    if (reader := _READERS.get((kind, name))) is not None:
        return reader(value)
    value = tuple(value) if isinstance(value, list) else value
    declared = kind.__annotations__[name].__forward_arg__
    if not isinstance(value, _CHECKED.get(declared, (object,))):
        raise TypeError(f"{name} must be {declared}")
    return value


def bytes_to_text(data: bytes) -> str:
    """Return bytes as text that `text_to_bytes` turns into the same bytes again."""
    return data.decode("utf-8", "surrogateescape")


def text_to_bytes(text: str) -> bytes:
    """Return the bytes that a text was made from by `bytes_to_text`."""
    return text.encode("utf-8", "surrogateescape")
