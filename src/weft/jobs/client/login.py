"""Logging in: a session by password or link is exchanged for a token, which programs keep."""

from __future__ import annotations

import socket

from weft.errors import UsageError
from weft.jobs.api.types.accounts import NewTokenAnswer, SessionAnswer
from weft.jobs.client.address import ServiceAddress
from weft.jobs.client.connection import ServiceConnection


def log_in(
    address: ServiceAddress,
    *,
    days: int,
    name: str | None = None,
    password: str | None = None,
    link: str | None = None,
) -> tuple[str, str]:
    """Return the name of the user who logs in and a new token for programs; the session is ended."""
    body = {"link": link} if link is not None else {"name": name, "password": password}
    with ServiceConnection(ServiceAddress(address.url, None, address.ca)) as connection:
        session = connection.send("POST", "/session", SessionAnswer, body)
        proof = {"X-Weft-CSRF": session.csrf or ""}
        asked = {"name": f"weft login on {socket.gethostname()}", "scopes": _scopes(session), "days": days}
        made = connection.send("POST", "/tokens", NewTokenAnswer, asked, proof)
        connection.send("DELETE", "/session", type(None), headers=proof)
    return session.user.name, made.text


def _scopes(session: SessionAnswer) -> list[str]:
    """Return all that the user may do, since commands do it in the user's name."""
    more = {"viewer": [], "member": ["write"], "admin": ["write", "admin"]}
    return ["read", *more[session.user.role]]


def check_token(address: ServiceAddress, token: str) -> tuple[str, str]:
    """Return the user whose token it is, and the token."""
    if not token or not token.isprintable() or not token.isascii():
        raise UsageError("a token must be given on standard input, got none; pipe it in")
    with ServiceConnection(ServiceAddress(address.url, token, address.ca)) as connection:
        return connection.get("/session", SessionAnswer).user.name, token
