"""One connection of a client: uvicorn's protocol with bounds on what may be sent and how long it may take.

A head that is too long is answered 431, one that is no HTTP 400, one that does not end 408; each closes the connection.
Large bodies go past the parser, which would copy them. Deadlines are kept by the listener, which looks at all
connections twice a second, so that a request costs no timer.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from collections.abc import Callable
from typing import Any

import httptools
import msgspec
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from weft.serve.server import logs
from weft.serve.server.http.exchange import Exchange
from weft.serve.server.http.limits import ConnectionLimits, Phase, is_overdue

_PAST_PARSER = 64 << 10  # bytes of a body from which on it goes past the parser


class HttpConnection(HttpToolsProtocol):
    """A connection that knows what it waits for, and since when."""

    cycle: Exchange | None  # type: ignore[assignment]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: ConnectionLimits,
        is_ending: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._is_ending = is_ending
        self._head_bytes = 0  # of the head that is being read
        self._begun = 0  # messages that began in the bytes at hand
        self._raw_left = 0  # bytes of a body that are still to go past the parser
        self._stalled_since: float | None = None  # the client reads too slowly since then
        self.phase = Phase.FRESH
        self.since = self.loop.time()

    # -- what comes in -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            self._make_room()

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.REFUSED:
            return
        if self.phase in (Phase.FRESH, Phase.KEPT):
            if self.phase is Phase.KEPT:
                self.since = self.loop.time()
            self.phase = Phase.HEAD
        if self._raw_left:
            data = self._past_parser(data)
        while data and self.phase is not Phase.REFUSED and self.parser is not None:
            piece = data[: self._limits.head_bytes] if len(data) > self._limits.head_bytes else data
            self._feed(piece)
            data = data[len(piece) :]
            if self._raw_left and data:
                data = self._past_parser(data)

    def _feed(self, piece: bytes) -> None:
        """Give the parser some bytes, of which at most the bound may belong to one head."""
        self._begun = 0
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
            # The wish is ignored, as HTTP allows: the request is answered.
            assert self.cycle is not None
            self.cycle.keep_alive = False
            self.phase = Phase.REFUSED
        except httptools.HttpParserError as error:
            if self.phase is not Phase.REFUSED:
                self._refuse(400, f"the request must be HTTP/1.1: {error}")
        if self.phase is Phase.HEAD:
            # Of a head that began after others in these bytes the length is not known: they do not count.
            self._head_bytes = 0 if self._begun > 1 else self._head_bytes + len(piece)
            if self._head_bytes >= self._limits.head_bytes:
                self._refuse(431, f"the head must be at most {self._limits.head_bytes} bytes")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begun += 1
        self._head_bytes = 0
        if self.phase is not Phase.HEAD:  # right after another request, in the same bytes
            self.phase, self.since = Phase.HEAD, self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= self._limits.headers:
            self._refuse(431, f"a request must have at most {self._limits.headers} headers")
            raise ValueError("too many headers")  # the parser stops
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.phase = Phase.BODY
        parser, scope = self.parser, self.scope
        version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if version != "1.1":
            scope["http_version"] = version
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = urllib.parse.unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        if parser.should_upgrade() and self._should_upgrade():
            return  # a WebSocket, which has a protocol of its own
        before = self.cycle
        length = self._announced_length()
        # A body that is longer than any that is taken will be dropped, so its parts need not be gathered.
        gathered = self._limits.ahead_bytes if length > self._limits.body_bytes else self._limits.body_bytes
        self.cycle = exchange = Exchange(
            ahead_bytes=self._limits.ahead_bytes,
            body_bytes=gathered,
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version != "1.0" and parser.should_keep_alive() and not self._is_ending(),
            on_response=self.on_response_complete,
        )
        self._raw_left = length if length >= _PAST_PARSER and not parser.should_upgrade() else 0
        if before is None or before.response_complete:
            self._start_asgi_task(exchange, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))

    def _announced_length(self) -> int:
        """Return the length of a body that comes in one piece; 0 for others."""
        lengths = [value for name, value in self.headers if name == b"content-length"]
        chunked = any(name == b"transfer-encoding" for name, _ in self.headers)
        if chunked or len(lengths) != 1 or not lengths[0].isdigit():
            return 0
        return int(lengths[0])

    def on_body(self, body: bytes) -> None:
        assert self.cycle is not None
        if self._raw_left:  # its first bytes, which came with the head
            self._raw_left -= len(body)
        if not self.cycle.response_complete:
            self.cycle.add(body)

    def _past_parser(self, data: bytes) -> bytes:
        """Take the bytes of a body; return those that come after it."""
        assert self.cycle is not None
        part = data if len(data) <= self._raw_left else data[: self._raw_left]
        self._raw_left -= len(part)
        if not self.cycle.response_complete:
            self.cycle.add(part)
        if self._raw_left:
            return b""
        self.parser = httptools.HttpRequestParser(self)  # the other one still waits for the body
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.on_message_complete()
        return data[len(part) :]

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade() and self._should_upgrade():
            return
        assert self.cycle is not None
        self._raw_left = 0
        if self.cycle.response_complete:
            self._await_request()
            return
        self.phase, self.since = Phase.ANSWERING, self.loop.time()
        self.cycle.end()

    # -- what goes out -------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.phase is Phase.ANSWERING:
            self._await_request()
        self.flow.resume_reading()
        if self.pipeline:
            exchange, app = self.pipeline.pop()
            self._start_asgi_task(exchange, app)

    def _await_request(self) -> None:
        self.phase, self.since = Phase.KEPT, self.loop.time()

    def pause_writing(self) -> None:
        self._stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since = None
        super().resume_writing()

    def _refuse(self, status: int, message: str) -> None:
        """Answer for the application, which never sees this request, and drop what follows."""
        self.phase, self.since = Phase.REFUSED, self.loop.time()
        logs.event("request", status=status, error=message, client=self.client and self.client[0])
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.keep_alive = False  # the answer before it comes first, and is the last
            return
        body = msgspec.json.encode({"error": message})
        head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(
            body
        )
        self.transport.write(STATUS_LINE[status] + head + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()

    # -- deadlines and the end -----------------------------------------------------------------------

    def look(self, now: float) -> None:
        """End the connection if it has used up its time."""
        if self._stalled_since is not None and now - self._stalled_since > self._limits.request_s:
            self.transport.abort()
        elif self.phase is Phase.REFUSED and self.cycle is not None and not self.cycle.response_complete:
            return  # the answer to the request before it is the last
        elif is_overdue(self.phase, now - self.since, self._limits, ending=self._is_ending()):
            self._end_overdue()

    def _end_overdue(self) -> None:
        if self.phase is Phase.HEAD:
            self._refuse(408, f"a head must arrive within {self._limits.head_s:g} s")
        elif self.phase is Phase.BODY and self.cycle is not None and not self.cycle.response_complete:
            self.cycle.late_s = self._limits.request_s
            self.cycle.keep_alive = False
            self.cycle.message_event.set()
            self.since = self.loop.time()  # for the answer; one that nobody reads is not waited for again
            self.phase = Phase.ANSWERING
        else:
            self.transport.close()

    def say_farewell(self, now: float) -> None:
        """Make the answer at work, or the next one, the last of this connection."""
        for exchange in (self.cycle, *(cycle for cycle, _ in self.pipeline)):
            if exchange is not None and not exchange.response_complete:
                exchange.keep_alive = False
        if self.phase in (Phase.FRESH, Phase.KEPT):
            self.since = now

    def _make_room(self) -> None:
        """Close the connection that has been waited for longest, so that new ones can come in."""
        waiting: list[Any] = [
            one
            for one in self.connections
            if one is not self and isinstance(one, HttpConnection) and one.phase is not Phase.ANSWERING
        ]
        if waiting:
            min(waiting, key=lambda one: one.since).transport.abort()
