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


class S3Connection(msgspec.Struct, frozen=True):
    """The address of an S3 service and the credentials for it; empty fields are boto3's to find."""

    endpoint: str = ""
    key: str = ""
    secret: str = ""
    region: str = ""

    def __repr__(self) -> str:
        return f"S3Connection({self.endpoint!r})"  # never the credentials


class S3Place(msgspec.Struct, frozen=True):
    """A bucket and a prefix, reached by a named connection."""

    bucket: str
    prefix: str
    connection: str = ""

    def __str__(self) -> str:
        at = f"{self.connection}@" if self.connection else ""
        return f"s3://{at}{self.bucket}/{self.prefix}".rstrip("/")


_PLACE = re.compile(r"s3://(?:([A-Za-z0-9_-]{1,100})@)?([A-Za-z0-9][A-Za-z0-9._-]{1,62})(?:/(.*))?")


def parse_place(text: str) -> S3Place:
    """Return what `s3://connection@bucket/prefix` names."""
    match = _PLACE.fullmatch(text)
    prefix = (match[3] or "").strip("/") if match else ""
    if match is None or ".." in prefix.split("/") or not prefix.isprintable() or len(prefix.encode()) > 1024:
        raise UsageError(f"a place in S3 must be s3://BUCKET/PREFIX, got {text[:200]!r}; name a bucket")
    return S3Place(match[2], prefix, match[1] or "")


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
