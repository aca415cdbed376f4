"""Messages between processes: one JSON object a line, one frozen type for each kind of message.

A protocol is a set of `Message` types that share a tag field, which tells them apart on the wire:

    class Command(Message, frozen=True, tag_field="do"): ...

    class StopWorkers(Command, frozen=True, tag="stop"):
        signal: int
        grace_s: float

    encode(StopWorkers(15, 2.0))                     {"do":"stop","signal":15,"grace_s":2.0}
    Decoder(StopWorkers, Dismiss).decode(line)       StopWorkers(signal=15, grace_s=2.0)

Fields may be numbers, text, bytes (base64 on the wire), None, tuples, dicts, dataclasses and other messages. Decoding
checks the names and the types of all fields, so a handler never meets a message that is half there.
"""

from __future__ import annotations

import json
from typing import Any, Generic, TypeVar, Union

import msgspec

from weft.errors import MessageError

SHOWN_BYTES = 200  # of a line that cannot be read, in the error


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The root of all messages. A subclass repeats `frozen=True`, and names its tag with `tag=`."""

    def fields(self) -> dict[str, Any]:
        """Return the tag and the fields as they stand on the wire, as a dict of the caller's own."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields


M = TypeVar("M", bound=Message)


def encode(message: Message) -> bytes:
    """Return a message as one line, its end included."""
    try:
        return msgspec.json.encode(message) + b"\n"
    except (
        UnicodeEncodeError
    ):  # the name of a file or a variable that is not UTF-8, with surrogates for its bytes
        return json.dumps(msgspec.to_builtins(message), separators=(",", ":")).encode() + b"\n"


class Decoder(Generic[M]):
    """Reads the messages of one protocol; `kinds` are all types that may come."""

    def __init__(self, *kinds: type[M]) -> None:
        self._kinds = kinds
        self._union: Any = Union[kinds]  # noqa: UP007 (a tuple)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._union)

    def decode(self, line: bytes) -> M:
        """Return the message in a line; MessageError if there is none of this protocol, or a field is wrong."""
        try:
            message: M = self._read(line)
        except (msgspec.DecodeError, ValueError) as error:
            names = ", ".join(str(kind.__struct_config__.tag) for kind in self._kinds)
            shown = line[:SHOWN_BYTES].decode(errors="replace").rstrip()
            raise MessageError(
                f"a message must be one of {names}, with all of its fields, got {shown!r} ({error}); "
                "is the same version of Weft on every host?"
            ) from error
        return message

    def _read(self, line: bytes) -> Any:
        if b"\\udc" in line:  # surrogates, see `encode`
            return msgspec.convert(json.loads(line), self._union)
        return self._decoder.decode(line)

    def find(self, line: bytes) -> M | None:
        """Return the message in a line that may be something else: None for a login shell's greeting, say."""
        return self.decode(line) if line.startswith(b"{") else None
