"""The secret of a run: both ends of a connection prove that they know it before they exchange anything else.

The launcher hands the secret to the agents over its own channel, and an agent to its workers by their environment. The
secret is never sent again: the ends exchange nonces, and proofs made of the secret and both nonces.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket

from weft.errors import ConnectError

VARIABLE = "WEFT_RUN_SECRET"  # by which a worker is told the secret of its run
NONCE_BYTES = 16
PROOF_BYTES = 32  # of HMAC-SHA256


def new_secret() -> str:
    """Make the secret of a run."""
    return secrets.token_hex(16)


def secret_for(secret: str, purpose: str) -> str:
    """Derive the secret for one purpose, such as the connections of one group, from that of the run."""
    return hmac.digest(secret.encode(), purpose.encode(), hashlib.sha256).hex()


def nonce() -> bytes:
    """Make bytes that no other connection has."""
    return secrets.token_bytes(NONCE_BYTES)


def proof(secret: str, role: str, theirs: bytes, ours: bytes) -> bytes:
    """Make the proof that this end, in this role, knows the secret; it holds for one connection only."""
    return hmac.digest(secret.encode(), role.encode() + theirs + ours, hashlib.sha256)


def is_proof(given: bytes, secret: str, role: str, ours: bytes, theirs: bytes) -> bool:
    """Return whether the other end has proven, in its role, that it knows the secret."""
    return hmac.compare_digest(given, proof(secret, role, ours, theirs))


def greet(connection: socket.socket, secret: str) -> None:
    """Prove to the listening end that this end knows the secret, and check that the other does."""
    ours = nonce()
    connection.sendall(ours)
    answer = receive(connection, NONCE_BYTES + PROOF_BYTES)
    theirs = answer[:NONCE_BYTES]
    if not is_proof(answer[NONCE_BYTES:], secret, "server", ours, theirs):
        raise ConnectError("a peer must know the secret of the run, got one that does not")
    connection.sendall(proof(secret, "client", theirs, ours))


def admit(connection: socket.socket, secret: str) -> None:
    """Check that a caller knows the secret, and prove that this end does: the other side of `greet`."""
    theirs = receive(connection, NONCE_BYTES)
    ours = nonce()
    connection.sendall(ours + proof(secret, "server", theirs, ours))
    if not is_proof(receive(connection, PROOF_BYTES), secret, "client", ours, theirs):
        raise ConnectError("a peer must know the secret of the run, got one that does not")


def receive(connection: socket.socket, count: int) -> bytes:
    """Receive exactly `count` bytes."""
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the peer closed the connection")
        data += piece
    return data
