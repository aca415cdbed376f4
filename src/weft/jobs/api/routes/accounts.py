"""Users, tokens, secrets and the audit."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import msgspec
import sqlalchemy as sa

from weft.jobs.accounts import tokens, users
from weft.jobs.accounts.passwords import hash_password, is_password
from weft.jobs.accounts.tokens import StoredToken
from weft.jobs.accounts.users import Account
from weft.jobs.api.binding import Handler
from weft.jobs.api.failures import ApiRefusal, not_found
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.accounts import (
    AuditAnswer,
    AuditEntry,
    AuditQuery,
    LinkAnswer,
    NewSecret,
    NewToken,
    NewTokenAnswer,
    NewUser,
    SecretsAnswer,
    SecretView,
    TokensAnswer,
    TokenView,
    UserChanges,
    UserQuota,
    UsersAnswer,
    UserView,
)
from weft.jobs.scheduler.model import Resources
from weft.jobs.service.attempts.system_user import find_system_user
from weft.jobs.service.usage import StoredQuota, quotas_of_all, usage_of_all
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import audit, secret

MOST_TOKENS = 200  # of one user
MOST_SECRETS = 200
_DAY_MS = 86_400_000


def show_user(account: Account, quota: StoredQuota | None = None, used: float = 0.0) -> UserView:
    has_password = account.password_hash is not None
    return UserView(
        account.id,
        account.name,
        account.role,
        account.disabled,
        has_password,
        account.created_ms,
        account.system_user,
        UserQuota(**asdict(quota or StoredQuota())),
        used,
    )


async def list_users(call: ApiCall) -> UsersAnswer:
    half_life_s = call.state.jobs.config.usage_half_life_s

    def work(connection: sa.Connection) -> tuple[UserView, ...]:
        quotas, used = quotas_of_all(connection), usage_of_all(connection, half_life_s)
        return tuple(
            show_user(one, quotas.get(one.id), used.get(one.name, 0.0))
            for one in users.list_users(connection)
        )

    return UsersAnswer(await call.database.read(work))


async def set_quota(call: ApiCall) -> UserView:
    body: UserQuota = call.body
    account = await _account(call)
    limits = (body.cpus, body.memory_bytes, body.gpus)
    most = Resources(*(math.inf if limit is None else limit for limit in limits))
    await call.state.jobs.set_quota(account.id, weight=body.weight, most=most)
    return await _shown(call, account)


async def _shown(call: ApiCall, account: Account) -> UserView:
    """Return a user with the quota of now."""
    quotas = await call.database.read(quotas_of_all)
    return show_user(account, quotas.get(account.id))


async def add_user(call: ApiCall) -> UserView:
    body: NewUser = call.body
    hashed = await asyncio.to_thread(hash_password, body.password) if body.password is not None else None
    _check_system_user(body.system_user)
    return show_user(
        await call.database.write(lambda c: users.add_user(c, body.name, body.role, hashed, body.system_user))
    )


def _check_system_user(name: str | msgspec.UnsetType | None) -> None:
    """Refuse a system user who is not on this machine."""
    if isinstance(name, str):
        find_system_user(name)


async def change_user(call: ApiCall) -> UserView:
    body: UserChanges = call.body
    account = await _account(call)
    if not call.identity.is_admin:
        await _check_own_password(body, account)
    changes: dict[str, Any] = {}
    if body.role is not msgspec.UNSET:
        changes["role"] = body.role
    if body.disabled is not msgspec.UNSET:
        changes["disabled"] = body.disabled
    if body.system_user is not msgspec.UNSET:
        _check_system_user(body.system_user)
        changes["system_user"] = body.system_user
    if body.password is not msgspec.UNSET:
        new = body.password
        changes["password_hash"] = None if new is None else await asyncio.to_thread(hash_password, new)
    return await _shown(
        call, await call.database.write(lambda c: users.change_user(c, account.id, **changes))
    )


async def _account(call: ApiCall) -> Account:
    """Return the user of a request's path; others than administrators see themselves alone."""
    number = int(call.path["user"])
    found = await call.database.read(lambda c: users.find_user(c, user_id=number))
    if found is None or (not call.identity.is_admin and found.id != call.identity.user_id):
        raise not_found("the user")
    return found


async def _check_own_password(body: UserChanges, account: Account) -> None:
    if body.role is not msgspec.UNSET or body.disabled is not msgspec.UNSET or not body.password:
        raise ApiRefusal(403, "users must change nothing of theirs but the password; ask an administrator")
    if account.password_hash is not None:
        old = body.old_password or ""
        if not await asyncio.to_thread(is_password, old, account.password_hash):
            raise ApiRefusal(403, "old_password must be the password of today, got another")


async def remove_user(call: ApiCall) -> None:
    account = await _account(call)
    await call.database.write(lambda c: users.remove_user(c, account.id))


async def link_user(call: ApiCall) -> LinkAnswer:
    account = await _account(call)
    if account.disabled:
        raise ApiRefusal(409, f"{account.name} must not be disabled to log in; enable the user first")
    expires_ms = now_ms() + tokens.LINK_MS
    text = await call.database.write(
        lambda c: tokens.make_token(
            c, account.id, kind="link", name="login link", scopes=(), expires_ms=expires_ms
        )
    )
    return LinkAnswer(f"{call.state.root_url}/login#link={text}", expires_ms)


# -- tokens ----------------------------------------------------------------------------------------------


def show_token(found: StoredToken) -> TokenView:
    return TokenView(found.id, found.name, found.scopes, found.created_ms, found.used_ms, found.expires_ms)


async def list_tokens(call: ApiCall) -> TokensAnswer:
    user_id = call.identity.user_id
    return TokensAnswer(
        tuple(map(show_token, await call.database.read(lambda c: tokens.list_tokens(c, user_id))))
    )


async def add_token(call: ApiCall) -> NewTokenAnswer:
    body: NewToken = call.body
    identity = call.identity
    more = sorted(set(body.scopes) - identity.scopes)
    if more:
        raise ApiRefusal(
            403, f"a token's scopes must be among your own, got {', '.join(more)}; leave them out"
        )
    expires_ms = None if body.days is None else now_ms() + body.days * _DAY_MS
    scopes = tuple(dict.fromkeys(body.scopes))

    def work(connection: sa.Connection) -> tuple[str, StoredToken]:
        if len(tokens.list_tokens(connection, identity.user_id)) >= MOST_TOKENS:
            raise ApiRefusal(409, f"a user must have at most {MOST_TOKENS} tokens; revoke some")
        text = tokens.make_token(
            connection, identity.user_id, name=body.name, scopes=scopes, expires_ms=expires_ms
        )
        return text, tokens.list_tokens(connection, identity.user_id)[0]

    text, made = await call.database.write(work)
    return NewTokenAnswer(show_token(made), text)


async def remove_token(call: ApiCall) -> None:
    number, user_id = int(call.path["token"]), call.identity.user_id
    if not await call.database.write(lambda c: tokens.remove_token(c, number, user_id=user_id)):
        raise not_found("the token")


# -- secrets ---------------------------------------------------------------------------------------------


async def list_secrets(call: ApiCall) -> SecretsAnswer:
    found = sa.select(secret.c.name, secret.c.created_ms).where(secret.c.user_id == call.identity.user_id)
    rows = await call.database.read(lambda c: c.execute(found.order_by(secret.c.name)).all())
    return SecretsAnswer(tuple(SecretView(row.name, row.created_ms) for row in rows))


async def add_secret(call: ApiCall) -> SecretView:
    body: NewSecret = call.body
    user_id, at = call.identity.user_id, now_ms()
    row = {
        "user_id": user_id,
        "name": body.name,
        "sealed": call.state.sealer.seal(body.value),
        "created_ms": at,
    }

    def work(connection: sa.Connection) -> None:
        connection.execute(sa.delete(secret).where(secret.c.user_id == user_id, secret.c.name == body.name))
        mine = sa.select(sa.func.count()).where(secret.c.user_id == user_id)
        if int(connection.scalar(mine) or 0) >= MOST_SECRETS:
            raise ApiRefusal(409, f"a user must have at most {MOST_SECRETS} secrets; remove some")
        connection.execute(sa.insert(secret), row)

    await call.database.write(work)
    return SecretView(body.name, at)


async def remove_secret(call: ApiCall) -> None:
    mine = sa.and_(secret.c.user_id == call.identity.user_id, secret.c.name == str(call.path["name"]))
    if not await call.database.write(lambda c: c.execute(sa.delete(secret).where(mine)).rowcount):
        raise not_found("the secret")


# -- audit -----------------------------------------------------------------------------------------------


async def list_audit(call: ApiCall) -> AuditAnswer:
    query: AuditQuery = call.query
    found = sa.select(audit).order_by(audit.c.id.desc()).limit(query.limit + 1)
    if query.user is not None:
        found = found.where(audit.c.user_name == query.user)
    if query.action is not None:
        found = found.where(audit.c.action == query.action)
    if query.cursor is not None:
        if not (query.cursor.isascii() and query.cursor.isdecimal() and len(query.cursor) < 16):
            raise ApiRefusal(422, "cursor must be `next` of the page before, got another text; begin anew")
        found = found.where(audit.c.id < int(query.cursor))
    rows = await call.database.read(lambda c: c.execute(found).all())
    entries = tuple(
        AuditEntry(
            row.id, row.time_ms, row.user_name, row.action, row.target, msgspec.json.decode(row.detail)
        )
        for row in rows[: query.limit]
    )
    return AuditAnswer(entries, str(entries[-1].id) if len(rows) > query.limit else None)


HANDLERS: Mapping[str, Handler] = {
    "list_users": list_users,
    "add_user": add_user,
    "change_user": change_user,
    "remove_user": remove_user,
    "link_user": link_user,
    "set_quota": set_quota,
    "list_tokens": list_tokens,
    "add_token": add_token,
    "remove_token": remove_token,
    "list_secrets": list_secrets,
    "add_secret": add_secret,
    "remove_secret": remove_secret,
    "list_audit": list_audit,
}
