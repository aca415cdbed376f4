"""One line of JSON for what happens, on stderr: events of models, failures, and requests where asked for."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder()


def event(what: str, **details: Any) -> None:
    line = {"at": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": what, **details}
    sys.stderr.write(_ENCODER.encode(line).decode() + "\n")
    sys.stderr.flush()
