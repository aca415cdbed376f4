"""The form of an agent's messages on the wire."""

from __future__ import annotations

import pytest

from weft.errors import MessageError
from weft.launch.agent.protocol import (
    AgentBeat,
    AgentEvent,
    AgentOrder,
    CommandFailed,
    DismissAgent,
    FindFiles,
    FindPort,
    HostSurveyed,
    HostUsed,
    LinkMeasured,
    ProbeResult,
    ProbeTarget,
    ReachTargets,
    StartWorkers,
    StopWorkers,
    TargetsReached,
    WorkerOutput,
    WorkerPoints,
    WorkersStarted,
    WorkerTask,
)
from weft.launch.agent.survey import survey
from weft.launch.agent.wire import (
    EVENTS,
    ORDERS,
    bytes_to_text,
    decode_event,
    decode_order,
    encode,
    order_name,
    text_to_bytes,
)


@pytest.mark.parametrize(
    "order",
    [
        FindFiles("/tmp", None),
        FindPort(None),
        ReachTargets((ProbeTarget("a", "10.0.0.1", 5),), 2.0),
        StartWorkers(
            1, "/caf\udce9", {"X": "\n"}, (WorkerTask(0, ("a", "b c"), {"Y": "\udcff"}, (1, 2), (0,)),)
        ),
        StopWorkers(15, 2),
        DismissAgent(),
    ],
)
def test_a_command_comes_as_it_was_sent(order: AgentOrder) -> None:
    line = encode(order)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert decode_order(line) == order
    assert type(decode_order(line)) is type(order)
    assert ORDERS[order_name(order)] is type(order)


@pytest.mark.parametrize(
    "event",
    [
        AgentBeat(),
        TargetsReached((ProbeResult("a", "10.0.0.1"), ProbeResult("b", "::1", "::2", "::3", "timed out"))),
        LinkMeasured(None, 0.5),
        WorkersStarted(0, (12, 13)),
        WorkerOutput(0, "out", bytes_to_text(bytes(range(256)))),
        HostUsed(5, {"cpu": 0.5}),
        WorkerPoints(1, '[1,2,{"loss":0.5}]\n'),
        CommandFailed("start", "no such file", 127),
    ],
)
def test_an_event_comes_as_it_was_sent(event: AgentEvent) -> None:
    assert decode_event(encode(event)) == event
    assert type(decode_event(encode(event))) is type(event)


def test_a_survey_of_another_version_may_have_more_fields() -> None:
    mine = HostSurveyed(survey())
    assert decode_event(encode(mine)) == mine
    assert decode_event(encode(mine).replace(b'"survey":{', b'"survey":{"mood":"good",')) == mine


def test_output_is_bytes_of_any_kind() -> None:
    every = bytes(range(256))
    assert text_to_bytes(bytes_to_text(every)) == every


@pytest.mark.parametrize("line", [b"Welcome to host1!", b"", b"{", b"{}", b"[1]", b"{x}", b'{"mood": 1}'])
def test_a_greeting_of_a_login_shell_is_no_message(line: bytes) -> None:
    assert decode_event(line) is None
    assert decode_order(line) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"event":"exit","rank":"0","code":1}', "rank must be int"),
        (b'{"event":"exit","rank":0}', "'code'"),
        (b'{"event":"exit","rank":0,"code":1,"mood":2}', "'mood'"),
        (b'{"event":"mood"}', "'mood'"),
        (b'{"event":{}}', "unhashable"),
        (b'{"event":"reach","results":3}', "not iterable"),
        (b'{"event":"reach","results":[3]}', "no attribute"),
        (b'{"event":"survey","survey":{}}', "'host'"),
        (b'{"event":"started","attempt":0,"pids":{}}', "pids must be"),
    ],
)
def test_a_wrong_message_is_refused_with_its_reason(line: bytes, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        decode_event(line)


def test_every_tag_has_a_type_of_its_own() -> None:
    kinds = [*ORDERS.values(), *EVENTS.values()]
    assert len(set(kinds)) == len(kinds)
