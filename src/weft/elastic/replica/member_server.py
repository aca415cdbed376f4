"""A server for the other members of a run: each connection proves that it knows the secret, and has a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from weft.errors import ConnectError, MessageError
from weft.secret import admit

PROOF_S = 5.0  # for a client to prove that it knows the run's secret
BACKLOG = 256  # connections that wait to be accepted: all members may come at once


class MemberServer:
    """Listens on a free port of an address, and answers each member that connects in a thread of its own.

    `answer` is called with a connection that has proven itself, and returns when the member has hung up; the
    connection is closed after it.
    """

    def __init__(
        self, address: str, secret: str, answer: Callable[[socket.socket], None], *, name: str
    ) -> None:
        self._secret = secret
        self._answer = answer
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.create_server((address, 0), family=family, backlog=BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    def close(self) -> None:
        """Stop listening; connections that are there go on."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError, ConnectError, MessageError):
            connection.settimeout(PROOF_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            admit(connection, self._secret)
            connection.settimeout(None)
            self._answer(connection)
