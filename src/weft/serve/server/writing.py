"""The head and the body of an answer in one write: the server hands them over one after the other.

Each write is a call of the system and often a packet of its own, which for a small answer is much of its cost.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class TogetherProtocol(HttpToolsProtocol):
    """uvicorn's protocol, over a transport that waits for the second half."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(Together(transport, self.loop))


class Together(asyncio.Transport):
    """A transport that holds one write back, at most until the event loop turns."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._inner = transport
        self._loop = loop
        self._held: bytes | None = None
        self._due = False

    def write(self, data: Any) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._inner.writelines((held, data))
            return
        self._held = data
        if not self._due:
            self._due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._due = False
        self._flush()

    def _flush(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            self._inner.write(held)

    def close(self) -> None:
        self._flush()
        self._inner.close()

    def is_closing(self) -> bool:
        return self._inner.is_closing()

    def abort(self) -> None:
        self._held = None
        self._inner.abort()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._inner.pause_reading()

    def resume_reading(self) -> None:
        self._inner.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._flush()
        self._inner.set_protocol(protocol)
