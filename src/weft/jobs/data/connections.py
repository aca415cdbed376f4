"""Connections to S3: an address with credentials, sealed among the secrets of a user.

`s3://work@bucket/prefix` uses the secret S3_WORK of the job's owner; `s3://bucket/prefix` the secret S3 if there is
one, else what boto3 finds by itself.
"""

from __future__ import annotations

import re

import msgspec
import sqlalchemy as sa

from weft.errors import UsageError
from weft.jobs.accounts.sealing import Sealer
from weft.jobs.store.events import now_ms
from weft.jobs.store.tables import secret
from weft.s3 import S3Connection, S3Place


def secret_name(connection: str) -> str:
    """Return the name of a connection's secret."""
    return "S3_" + re.sub(r"[^A-Z0-9]", "_", connection.upper()) if connection else "S3"


def put_secret(connection: sa.Connection, sealer: Sealer, user_id: int, name: str, text: str) -> None:
    """Keep a secret of a user, in place of one with the same name."""
    mine = (secret.c.user_id == user_id) & (secret.c.name == name)
    connection.execute(sa.delete(secret).where(mine))
    row = {"user_id": user_id, "name": name, "sealed": sealer.seal(text), "created_ms": now_ms()}
    connection.execute(sa.insert(secret), row)


def find_connection(connection: sa.Connection, sealer: Sealer, user_id: int, place: S3Place) -> S3Connection:
    """Return the connection of a place; a named one must be among the user's secrets."""
    name = secret_name(place.connection)
    sealed = connection.scalar(
        sa.select(secret.c.sealed).where(secret.c.user_id == user_id, secret.c.name == name)
    )
    if sealed is None:
        if place.connection:
            raise UsageError(
                f"{place} must have a secret {name} of its user, got none; add it as JSON: endpoint, key, secret"
            )
        return S3Connection()
    try:
        return msgspec.json.decode(sealer.open(sealed), type=S3Connection)
    except msgspec.MsgspecError:
        raise UsageError(
            f"the secret {name} must be JSON with endpoint, key, secret, got something else"
        ) from None
