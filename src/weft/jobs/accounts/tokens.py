"""Tokens: random texts that are shown once and kept as digests. Sessions, login links and tokens of jobs are tokens.

A token is 32 random bytes, so one round of SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import sqlalchemy as sa

from weft.jobs.accounts.users import Account, Role
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import token, user

PREFIX = "weft_"
TokenKind = Literal["api", "session", "link", "job"]
SESSION_MS = 14 * 86_400_000
LINK_MS = 15 * 60_000  # of a login link
_USED_STEP_MS = 60_000  # how exactly the last use is known: a write for every request would be too many


@dataclass(frozen=True)
class StoredToken:
    """One token as the store knows it, without its text."""

    id: int
    user_id: int
    kind: TokenKind
    name: str
    scopes: tuple[str, ...]
    created_ms: int
    used_ms: int | None
    expires_ms: int | None


@dataclass(frozen=True)
class TokenHolder:
    """A valid token with its user."""

    token: StoredToken
    account: Account


def digest(text: str) -> str:
    """Return what the store keeps of a token."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def csrf_of(text: str) -> str:
    """Return the value that writes of a session must send besides its cookie, which other sites cannot know."""
    return hmac.digest(text.encode(), b"weft csrf", "sha256").hex()


def make_token(
    connection: sa.Connection,
    user_id: int,
    *,
    kind: TokenKind = "api",
    name: str,
    scopes: Sequence[str],
    expires_ms: int | None = None,
) -> str:
    """Make a token and return its text, which is not kept anywhere. Scopes: read, write, admin, job:7."""
    text = PREFIX + secrets.token_urlsafe(32)
    row: dict[str, object] = {
        "user_id": user_id,
        "kind": kind,
        "name": name[:100],
        "scopes": " ".join(scopes),
    }
    row |= {"digest": digest(text), "created_ms": now_ms(), "expires_ms": expires_ms}
    connection.execute(sa.insert(token).values(row))
    return text


def find_holder(connection: sa.Connection, text: str, kinds: Sequence[TokenKind]) -> TokenHolder | None:
    """Return a valid token of one of these kinds with its user, or None."""
    found = sa.select(token, *(column.label(f"account_{column.name}") for column in user.c))
    found = found.join(user, user.c.id == token.c.user_id).where(token.c.digest == digest(text))
    row = connection.execute(found).one_or_none()
    if row is None or row.kind not in kinds or row.account_disabled:
        return None
    if row.expires_ms is not None and row.expires_ms <= now_ms():
        return None
    account = Account(
        **{name: row._mapping[f"account_{name}"] for name in (column.name for column in user.c)}
    )
    return TokenHolder(_stored(row), account)


def list_tokens(connection: sa.Connection, user_id: int) -> tuple[StoredToken, ...]:
    """Return the API tokens of a user, newest first."""
    found = sa.select(token).where(token.c.user_id == user_id, token.c.kind == "api")
    return tuple(map(_stored, connection.execute(found.order_by(token.c.id.desc()))))


def remove_token(connection: sa.Connection, token_id: int, *, user_id: int | None = None) -> bool:
    """Revoke a token; return whether there was one, of that user if one is named."""
    gone = sa.delete(token).where(token.c.id == token_id)
    if user_id is not None:
        gone = gone.where(token.c.user_id == user_id, token.c.kind == "api")
    return connection.execute(gone).rowcount > 0


def use_link(connection: sa.Connection, text: str) -> TokenHolder | None:
    """Return who a login link is for, and make it of no more use."""
    holder = find_holder(connection, text, ("link",))
    # The row's removal decides: of two who use a link at once, one finds nothing to remove.
    return holder if holder is not None and remove_token(connection, holder.token.id) else None


def touch(connection: sa.Connection, token_id: int) -> None:
    """Note that a token was used just now."""
    connection.execute(sa.update(token).where(token.c.id == token_id).values(used_ms=now_ms()))


def is_worth_touching(found: StoredToken) -> bool:
    return found.used_ms is None or now_ms() - found.used_ms > _USED_STEP_MS


def remove_expired(connection: sa.Connection) -> int:
    """Forget the tokens that have expired; return how many there were."""
    return connection.execute(sa.delete(token).where(token.c.expires_ms <= now_ms())).rowcount


def allowed_scopes(role: Role) -> frozenset[str]:
    """Return the scopes that a role's tokens can have at most."""
    return frozenset({"viewer": ("read",), "member": ("read", "write")}.get(role, ("read", "write", "admin")))


def _stored(row: sa.Row[tuple[object, ...]]) -> StoredToken:
    return StoredToken(
        row.id,
        row.user_id,
        row.kind,
        row.name,
        tuple(row.scopes.split()),
        row.created_ms,
        row.used_ms,
        row.expires_ms,
    )
