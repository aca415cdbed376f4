"""Access: who sends a request, by token, session or password, and what they may see and change."""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from starlette.requests import HTTPConnection

from weft.jobs.accounts import tokens
from weft.jobs.accounts.guesses import GuessLimit
from weft.jobs.accounts.passwords import is_password
from weft.jobs.accounts.tokens import TokenHolder, TokenKind
from weft.jobs.accounts.users import Account, Role, find_user
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.operations import Access
from weft.jobs.store.database import Database
from weft.jobs.store.jobs import StoredJob

COOKIE = "weft_session"
CSRF_HEADER = "x-weft-csrf"
_HASHES_AT_ONCE = 2  # passwords that are tried at the same time: each takes 32 MiB and a core for 0.1 s
_RANKS: Mapping[str, int] = {"viewer": 0, "member": 1, "admin": 2}
_NEEDED: Mapping[Access, int] = {"open": 0, "read": 0, "write": 1, "admin": 2}


@dataclass(frozen=True)
class Identity:
    """The user behind a request, with what the token or session allows."""

    user_id: int
    name: str
    role: Role
    scopes: frozenset[str]
    kind: Literal["api", "session", "job", "password"]
    token_id: int | None = None
    csrf: str | None = None  # of a session
    shared: bool = True  # users see each other's jobs

    @property
    def job_id(self) -> int | None:
        """The one job that a token is for; None: a token of a user."""
        return next((int(scope[4:]) for scope in self.scopes if scope.startswith("job:")), None)

    @property
    def is_admin(self) -> bool:
        return self.role == "admin" and "admin" in self.scopes

    @property
    def visible_to(self) -> int | None:
        """The user whose jobs alone are shown; None: all are."""
        return None if self.shared or self.is_admin else self.user_id

    def check(self, access: Access) -> None:
        """Refuse a request that takes another role or scope."""
        if access == "open":
            return
        if _RANKS[self.role] < _NEEDED[access]:
            wanted = "an administrator" if access == "admin" else "a member"
            raise ApiRefusal(
                403, f"this must be asked for by {wanted}, got a {self.role}; ask an administrator"
            )
        if access not in self.scopes:
            had = ", ".join(sorted(self.scopes)) or "none"
            raise ApiRefusal(403, f"the token must have the scope {access}, got {had}; make another token")

    def may_act_on(self, found: StoredJob) -> bool:
        """Return whether a job may be changed by this user."""
        if self.job_id is not None or "write" not in self.scopes or self.role == "viewer":
            return False
        return self.is_admin or found.user_id == self.user_id

    def check_acts_on(self, found: StoredJob) -> None:
        """Refuse a change of a job that is only to be seen."""
        if not self.may_act_on(found):
            raise ApiRefusal(
                403, f"job {found.id} must be your own to be changed, got one of {found.user_name}"
            )


class Authenticator:
    """Finds out who sends a request."""

    def __init__(self, database: Database, *, shared: bool, guesses: GuessLimit | None = None) -> None:
        self._database = database
        self._shared = shared
        self._guesses = guesses or GuessLimit()
        self._hashing = asyncio.Semaphore(_HASHES_AT_ONCE)

    async def identify(self, request: HTTPConnection) -> Identity:
        """Return who sends a request; one without a valid token or session is refused."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return await self._by_token(given.strip(), ("api", "job"))
        if kind.lower() == "basic":
            return await self._by_basic(given.strip(), address_of(request))
        cookie = request.cookies.get(COOKIE)
        if cookie:
            return await self._by_token(cookie, ("session",))
        raise ApiRefusal(
            401, "a request must have a token (Authorization: Bearer TOKEN) or a session; log in"
        )

    def check_csrf(self, request: HTTPConnection, identity: Identity) -> None:
        """Refuse a write in a session that another site's page may have made the browser send."""
        if identity.csrf is None:
            return
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode("latin-1", "replace"), identity.csrf.encode()):
            raise ApiRefusal(
                403, "a write in a session must have the header X-Weft-CSRF from GET /session", code="csrf"
            )

    async def by_password(self, name: str, password: str, address: str) -> Account:
        """Return the user with a name and a password; too many failures must wait."""
        keys = (f"address {address}", f"name {name}")
        wait_s = self._guesses.wait_s(*keys)
        if wait_s > 0:
            raise ApiRefusal(
                429,
                f"logins must pause for {wait_s:.0f} s after so many failures",
                retry_after_s=int(wait_s) + 1,
            )
        # Counted before the hash is made: many guesses sent at once are all counted.
        self._guesses.failed(*keys)
        found = await self._database.read(lambda c: find_user(c, name=name))
        usable = found.password_hash if found is not None and not found.disabled else None
        async with self._hashing:
            good = await asyncio.to_thread(is_password, password, usable)
        if not good or found is None:
            raise ApiRefusal(401, "name and password must belong together, got others")
        self._guesses.succeeded(*keys)
        return found

    async def _by_token(self, text: str, kinds: tuple[TokenKind, ...]) -> Identity:
        holder = await self._database.read(lambda c: tokens.find_holder(c, text, kinds))
        if holder is None:
            raise ApiRefusal(
                401, "a token must be valid, got one that is unknown, revoked or expired; log in"
            )
        if tokens.is_worth_touching(holder.token):
            number = holder.token.id
            self._database.submit(lambda c: tokens.touch(c, number))
        return self.identity_of(holder, text)

    def identity_of(self, holder: TokenHolder, text: str) -> Identity:
        """Return the identity that a token gives."""
        account, found = holder.account, holder.token
        session = found.kind == "session"
        scopes = frozenset(found.scopes)
        if found.kind != "job":
            scopes &= tokens.allowed_scopes(account.role)
        return Identity(
            account.id,
            account.name,
            account.role,
            scopes,
            "session" if session else "job" if found.kind == "job" else "api",
            found.id,
            tokens.csrf_of(text) if session else None,
            self._shared,
        )

    async def _by_basic(self, given: str, address: str) -> Identity:
        """Return who sends a name and a password, or any name and a token, as older clients do."""
        try:
            name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
        except ValueError:
            raise ApiRefusal(401, "Authorization: Basic must be a name and a password in base64") from None
        if password.startswith(tokens.PREFIX):
            return await self._by_token(password, ("api", "job"))
        account = await self.by_password(name, password, address)
        scopes = tokens.allowed_scopes(account.role)
        return Identity(account.id, account.name, account.role, scopes, "password", shared=self._shared)


def address_of(request: HTTPConnection) -> str:
    return request.client.host if request.client is not None else "unknown"
