"""Users in the store: made, changed, found, and never the last administrator removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import job, token, user

Role = Literal["viewer", "member", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "member", "admin")


@dataclass(frozen=True)
class Account:
    """One user as the store knows them."""

    id: int
    name: str
    password_hash: str | None
    role: Role
    system_user: str | None
    disabled: bool
    created_ms: int


class AccountConflictError(UsageError):
    """A change of accounts that the other accounts do not allow."""


def add_user(
    connection: sa.Connection,
    name: str,
    role: Role,
    password_hash: str | None = None,
    system_user: str | None = None,
) -> Account:
    """Make a user; a name that is taken is refused."""
    if find_user(connection, name=name) is not None:
        raise AccountConflictError(f"the name of a user must be new, got {name!r}; choose another")
    row = {
        "name": name,
        "role": role,
        "password_hash": password_hash,
        "system_user": system_user,
        "created_ms": now_ms(),
    }
    number = connection.execute(sa.insert(user).values(row).returning(user.c.id)).scalar_one()
    found = find_user(connection, user_id=number)
    assert found is not None
    return found


def find_user(
    connection: sa.Connection, *, user_id: int | None = None, name: str | None = None
) -> Account | None:
    """Return a user by number or by name."""
    condition = user.c.id == user_id if user_id is not None else user.c.name == name
    row = connection.execute(sa.select(user).where(condition)).one_or_none()
    return Account(**row._mapping) if row is not None else None


def list_users(connection: sa.Connection) -> tuple[Account, ...]:
    """Return all users by name."""
    return tuple(Account(**row._mapping) for row in connection.execute(sa.select(user).order_by(user.c.name)))


def change_user(connection: sa.Connection, user_id: int, **changes: Any) -> Account:
    """Change a user; who loses rights or gets another password has to log in again."""
    if changes.get("role", "admin") != "admin" or changes.get("disabled"):
        _keep_an_administrator(connection, user_id)
    if changes:
        connection.execute(sa.update(user).where(user.c.id == user_id).values(changes))
    if changes.get("disabled"):
        connection.execute(sa.delete(token).where(token.c.user_id == user_id))
    elif "password_hash" in changes:
        kinds = ("session", "link")
        connection.execute(sa.delete(token).where(token.c.user_id == user_id, token.c.kind.in_(kinds)))
    found = find_user(connection, user_id=user_id)
    assert found is not None
    return found


def remove_user(connection: sa.Connection, user_id: int) -> None:
    """Remove a user who has no jobs: those keep the name of who submitted them."""
    _keep_an_administrator(connection, user_id)
    if connection.scalar(sa.select(job.c.id).where(job.c.user_id == user_id).limit(1)) is not None:
        raise AccountConflictError(
            "a user who is removed must have no jobs, got one who has some; remove the jobs, or disable the user"
        )
    connection.execute(sa.delete(user).where(user.c.id == user_id))


def _keep_an_administrator(connection: sa.Connection, user_id: int) -> None:
    others = sa.select(sa.func.count()).where(
        user.c.role == "admin", user.c.disabled.is_(False), user.c.id != user_id
    )
    mine = find_user(connection, user_id=user_id)
    if mine is not None and mine.role == "admin" and not mine.disabled and not connection.scalar(others):
        raise AccountConflictError(
            "there must be an administrator, got the last one; make another administrator first"
        )
