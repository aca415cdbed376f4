"""One request and its answer over HTTP: a body comes in one piece, copied once."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from weft.serve.server.refusal import RefusalError


class Exchange(RequestResponseCycle):
    """uvicorn's cycle with another way for the body: parts are kept as they came and joined when asked for."""

    def __init__(self, *, ahead_bytes: int, body_bytes: int, **cycle: Any) -> None:
        super().__init__(**cycle)
        self._parts: list[bytes] = []
        self._held = 0  # bytes in the parts
        self._bounds = (ahead_bytes, body_bytes)
        self._asked = False  # the application waits for the body, or has waited for a part of it
        self._given = False  # the application has the last part
        self.late_s: float | None = None  # set to the bound when the body took too long

    def add(self, part: bytes) -> None:
        """Keep a part of the body; beyond the bound the connection is not read until the application asks."""
        self._parts.append(part)
        self._held += len(part)
        if self._held > self._bounds[self._asked]:
            self.flow.pause_reading()
            self.message_event.set()

    def end(self) -> None:
        """The body is whole."""
        self.more_body = False
        self.message_event.set()

    async def receive(self) -> Any:
        """Return the whole body in one message, or a part of one above the bound; then, the disconnect."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        self._asked = True
        while not self._something():
            self.flow.resume_reading()
            self.message_event.clear()
            await self.message_event.wait()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        if self.late_s is not None:
            raise RefusalError(408, f"a request must arrive within {self.late_s:g} s")
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts, self._held = [], 0
        self._given = not self.more_body
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    def _something(self) -> bool:
        """Return whether there is a message for the application."""
        if self.disconnected or self.response_complete or self.late_s is not None:
            return True
        return not self._given and (not self.more_body or self._held > self._bounds[1])
