"""Messages between processes: what goes onto the wire comes off it, and nothing else does."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from weft.errors import MessageError
from weft.messages import Decoder, Message, encode


@dataclass(frozen=True)
class Card:
    name: str
    addresses: tuple[str, ...] = ()


class Word(Message, frozen=True, tag_field="do"):
    pass


class Start(Word, frozen=True, tag="start"):
    argv: tuple[str, ...]
    env: dict[str, str]
    card: Card | None = None
    pids: dict[int, int] = {}  # noqa: RUF012 (a Struct copies its defaults)


class Say(Word, frozen=True, tag="say"):
    data: bytes


class Bye(Word, frozen=True, tag="bye"):
    pass


DECODER = Decoder(Start, Say, Bye)


@pytest.mark.parametrize(
    "message",
    [
        Start(("a", "b c"), {"X": "\n"}, Card("eth0", ("10.0.0.1",)), {3: 4000}),
        Start((), {}),
        Start(("caf\udce9.py",), {"NAME": "\udcff"}),  # not UTF-8, as the kernel hands them over
        Say(bytes(range(256))),
        Bye(),
    ],
)
def test_a_message_is_one_line_and_comes_back(message: Word) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert DECODER.decode(line) == message
    assert type(DECODER.decode(line[:-1])) is type(message)


def test_the_tag_comes_first() -> None:
    assert encode(Bye()) == b'{"do":"bye"}\n'
    assert json.loads(encode(Say(b"ab"))) == {"do": "say", "data": "YWI="}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"do":"sing"}', "Invalid value 'sing'"),
        (b'{"do":"bye","now":true}', "unknown field `now`"),
        (b'{"do":"start","argv":[]}', "missing required field `env`"),
        (b'{"do":"start","argv":"ls","env":{}}', "Expected `array`, got `str`"),
        (b'{"event":"bye"}', "missing required field `do`"),
        (b'{"do":"say","data":"?"}', "base64"),
        (b'{"do":', "truncated"),
        (b"\xff\xfe", "invalid"),
        (b"[1]", "got `array`"),
    ],
)
def test_a_line_that_is_no_message_is_told_with_its_fault(line: bytes, why: str) -> None:
    with pytest.raises(MessageError) as caught:
        DECODER.decode(line)
    assert "a message must be one of start, say, bye" in str(caught.value)
    assert why in str(caught.value)


def test_a_greeting_between_messages_is_passed_over() -> None:
    assert DECODER.find(b"Welcome to host1\n") is None
    assert DECODER.find(b"\n") is None
    assert DECODER.find(b'{"do":"bye"}\n') == Bye()
    with pytest.raises(MessageError):
        DECODER.find(b'{"do":"sing"}\n')


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Say(b"").data = b"x"  # type: ignore[misc]
