"""The run's secret: both ends of a connection prove that they know it before anything else is said.

It reaches the agents over their launcher's own channel and never travels again; what is sent proves it without telling.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket

from weft.errors import ConnectError

NONCE_BYTES = 16
PROOF_BYTES = 32


def new_secret() -> str:
    return secrets.token_hex(16)


def nonce() -> bytes:
    return secrets.token_bytes(NONCE_BYTES)


def proof(secret: str, role: str, theirs: bytes, ours: bytes) -> bytes:
    """That we, in this role, know the secret; good for this one connection only."""
    return hmac.digest(secret.encode(), role.encode() + theirs + ours, hashlib.sha256)


def is_proof(given: bytes, secret: str, role: str, ours: bytes, theirs: bytes) -> bool:
    """Whether the other end has shown that it knows the secret in that role."""
    return hmac.compare_digest(given, proof(secret, role, ours, theirs))


def greet(connection: socket.socket, secret: str) -> None:
    """The calling side: prove ourselves, and see that the other end can."""
    ours = nonce()
    connection.sendall(ours)
    answer = receive(connection, NONCE_BYTES + PROOF_BYTES)
    theirs = answer[:NONCE_BYTES]
    if not is_proof(answer[NONCE_BYTES:], secret, "server", ours, theirs):
        raise ConnectError("a peer must know the secret of the run, got one that does not")
    connection.sendall(proof(secret, "client", theirs, ours))


def admit(connection: socket.socket, secret: str) -> None:
    """The listening side of `greet`."""
    theirs = receive(connection, NONCE_BYTES)
    ours = nonce()
    connection.sendall(ours + proof(secret, "server", theirs, ours))
    if not is_proof(receive(connection, PROOF_BYTES), secret, "client", ours, theirs):
        raise ConnectError("a peer must know the secret of the run, got one that does not")


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly so many bytes."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the peer closed the connection")
        data += piece
    return data
