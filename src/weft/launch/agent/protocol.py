"""The words between the launcher and an agent: one JSON object a line.

Launcher to agent, `{"do": ...}`:

    beat                                        I am here
    survey                                      describe your host
    look    cwd | null, script | null           could you start this; and what time is it?
    route   to: [address, ...]                  from which card would you reach these?
    listen                                      answer probes on a port of your choice
    reach   targets: [[name, address, port]]    can you connect to these?
    measure address, port, seconds              bandwidth and round trip to a peer that listens
    port    port | null                         is this port free; or pick one
    start   attempt, cwd, env, workers          start these workers
    stop    signal, grace_s                     end them, politely, then by force
    become  module                              go on as another program that speaks on the same streams
    bye                                         nothing more will come

Agent to launcher, `{"event": ...}`: an answer carries the name of its question; a run is told by
`started`, `output`, `exit`, `done`; `beat` says the agent lives; `failed` carries a message.

Output is bytes of any kind. It travels as text with `surrogateescape`, which gives back the same bytes
even where a chunk ends inside a character.
"""

from __future__ import annotations

import json
from typing import Any

Message = dict[str, Any]


def encode(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes, key: str) -> Message | None:
    """The message in this line, or None for a line that is not one (a login shell's greeting, say)."""
    if not line.startswith(b"{"):
        return None
    try:
        message = json.loads(line)
    except ValueError:
        return None
    return message if isinstance(message, dict) and key in message else None


def bytes_to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def text_to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
