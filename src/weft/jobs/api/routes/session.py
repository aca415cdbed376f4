"""The session: logging in by password or by link, who is logged in, and logging out."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from starlette.responses import Response

from weft.jobs.accounts import tokens
from weft.jobs.accounts.tokens import TokenHolder
from weft.jobs.accounts.users import Account
from weft.jobs.api.access import COOKIE, Identity, address_of
from weft.jobs.api.binding import Handler, json_response
from weft.jobs.api.failures import ApiRefusal
from weft.jobs.api.state import ApiCall
from weft.jobs.api.types.accounts import Login, SessionAnswer, SessionUser
from weft.jobs.store.events import add_audit, now_ms
from weft.version import __version__


async def log_in(call: ApiCall) -> Response:
    body: Login = call.body
    account = await _account(call, body)
    expires_ms = now_ms() + tokens.SESSION_MS
    scopes = sorted(tokens.allowed_scopes(account.role))

    def work(connection: sa.Connection) -> tuple[str, TokenHolder]:
        text = tokens.make_token(
            connection, account.id, kind="session", name="session", scopes=scopes, expires_ms=expires_ms
        )
        add_audit(connection, account.name, "log in", f"user {account.id}", address=address_of(call.request))
        holder = tokens.find_holder(connection, text, ("session",))
        assert holder is not None
        return text, holder

    text, holder = await call.database.write(work)
    identity = call.state.authenticator.identity_of(holder, text)
    response = await json_response(_shown(call, identity), 201)
    response.set_cookie(
        COOKIE,
        text,
        max_age=tokens.SESSION_MS // 1000,
        path="/",
        secure=call.state.secure,
        httponly=True,
        samesite="strict",
    )
    return response


async def _account(call: ApiCall, body: Login) -> Account:
    address = address_of(call.request)
    if body.link is not None and body.name is None and body.password is None:
        link = body.link
        holder = await call.database.write(lambda c: tokens.use_link(c, link))
        if holder is None:
            raise ApiRefusal(401, "a link must be new, got one that was used or has expired; ask for another")
        return holder.account
    if body.link is None and body.name is not None and body.password is not None:
        try:
            return await call.state.authenticator.by_password(body.name, body.password, address)
        except ApiRefusal:
            name = body.name
            await call.database.write(lambda c: add_audit(c, name, "log in refused", "", address=address))
            raise
    raise ApiRefusal(422, "a login must have name and password, or link, got other fields")


async def show(call: ApiCall) -> SessionAnswer:
    return _shown(call, call.identity)


def _shown(call: ApiCall, identity: Identity) -> SessionAnswer:
    user = SessionUser(identity.user_id, identity.name, identity.role)
    return SessionAnswer(user, identity.csrf, __version__, call.state.shared, tuple(sorted(identity.scopes)))


async def log_out(call: ApiCall) -> Response:
    number = call.identity.token_id
    if call.identity.kind == "session" and number is not None:
        await call.database.write(lambda c: tokens.remove_token(c, number))
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, path="/", secure=call.state.secure, httponly=True, samesite="strict")
    return response


HANDLERS: Mapping[str, Handler] = {"log_in": log_in, "show_session": show, "log_out": log_out}
