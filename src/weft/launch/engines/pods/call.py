"""The program with which the launcher starts an agent in another pod: `python -m weft.launch.engines.pods.call`.

The arguments are a file with the secret of the run, an address, a port and a command. It stands where ssh stands for
other hosts: the standard streams of the agent are its own.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

from weft.errors import ConnectError
from weft.launch.engines.pods.lines import CONNECT_TIMEOUT_S, keep_alive, send_line
from weft.secret import greet

CHUNK_BYTES = 1 << 16


def call(address: str, port: int, argv: list[str], secret: str) -> int:
    """Run a command in another pod, with the streams of this process; return once it has closed its output."""
    try:
        connection = socket.create_connection((address, port), CONNECT_TIMEOUT_S)
        greet(connection, secret)
        send_line(connection, {"argv": argv})
    except (OSError, ConnectError) as error:
        print(f"no answer from {address} port {port}: {error}", file=sys.stderr)
        return 1
    connection.settimeout(None)
    keep_alive(connection)
    threading.Thread(target=_send_input, args=(connection,), daemon=True).start()
    try:
        while data := connection.recv(CHUNK_BYTES):
            _write_all(data)
    except OSError as error:
        print(f"the connection to {address} broke: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _write_all(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def _send_input(connection: socket.socket) -> None:
    try:
        while data := os.read(0, CHUNK_BYTES):
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the other direction has said so


if __name__ == "__main__":
    # A thread may be blocked on the standard input, so the process is left without waiting for it.
    os._exit(call(sys.argv[2], int(sys.argv[3]), sys.argv[4:], Path(sys.argv[1]).read_text()))
