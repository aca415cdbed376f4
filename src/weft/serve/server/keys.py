"""API keys: shown once when made, kept only as hashes, revoked in the file while servers run.

A key is 32 random bytes, so one round of SHA-256 is enough: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import msgspec

from weft.documents import parse_json
from weft.errors import UsageError
from weft.files import locked, write_whole
from weft.serve.server import logs
from weft.serve.server.refusal import RefusalError

PREFIX = "weft_"
ROLES = ("infer", "admin")  # ask models; also load, unload and share out traffic
_LOOK_S = 0.5  # how long a revoked key may still be let in


@dataclass(frozen=True)
class KeyRecord:
    """The stored part of a key: its hash, never its text."""

    id: str
    name: str
    sha256: str
    created: str
    revoked: str | None = None
    role: str = "admin"  # keys of files from before there were roles may do everything


def add_key(path: Path, name: str, role: str = "infer") -> tuple[KeyRecord, str]:
    """A new key, and its text, which is not kept anywhere."""
    if role not in ROLES:
        raise UsageError(f"the role of a key must be one of {', '.join(ROLES)}, got {role!r}")
    text = PREFIX + secrets.token_urlsafe(32)
    record = KeyRecord(secrets.token_hex(4), name, digest(text.encode()), _now(), role=role)
    with _changing(path):
        _write(path, [*read_keys(path), record])
    return record, text


def revoke_key(path: Path, which: str) -> KeyRecord:
    """By its id or its name."""
    with _changing(path):
        records = read_keys(path)
        found = [one for one in records if which in (one.id, one.name) and one.revoked is None]
        if len(found) != 1:
            known = ", ".join(f"{one.id} ({one.name})" for one in records if one.revoked is None) or "none"
            raise UsageError(
                f"a key must be named by its id or its only name, got {which!r}; there is {known}"
            )
        revoked = replace(found[0], revoked=_now())
        _write(path, [revoked if one.id == revoked.id else one for one in records])
    return revoked


def read_keys(path: Path) -> list[KeyRecord]:
    try:
        return msgspec.convert(parse_json(path.read_text()), list[KeyRecord])
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} must be a file of keys made by `weft serve keys add`: {error}") from error


def digest(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


class KeyRing:
    """The valid keys of a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._looked = -_LOOK_S
        self._roles: dict[str, str] = {}  # of valid keys, by hash
        if not path.exists():
            raise UsageError(
                f"--keys must name a file of keys, got nothing at {path}; `weft serve keys add` makes one"
            )
        self._look()

    def check(self, key: bytes, *, admin: bool = False) -> None:
        """Refuse a request without a valid key, and one that takes an administrator's key if this is none."""
        if monotonic() - self._looked > _LOOK_S:
            self._look()
        if not key:
            raise RefusalError(401, "a key must be given: Authorization: Bearer KEY, or X-Api-Key: KEY")
        role = self._roles.get(digest(key))
        if role is None:
            raise RefusalError(401, "the key must be a valid one, got one that is unknown or revoked")
        if admin and role != "admin":
            raise RefusalError(403, "the key must be an administrator's (keys add --role admin)")

    def _look(self) -> None:
        self._looked = monotonic()
        try:
            state = self._path.stat()
        except OSError:
            if self._stamp is not None:
                logs.event("keys", error=f"{self._path} is gone: no key is valid")
            self._roles, self._stamp = {}, None
            return
        stamp = (state.st_mtime_ns, state.st_ino, state.st_size)
        if stamp == self._stamp:
            return
        try:
            records = read_keys(self._path)
        except UsageError as error:
            if self._stamp is None:
                raise
            logs.event("keys", error=f"{error}; the keys from before stay valid")
        else:
            self._roles = {one.sha256: one.role for one in records if one.revoked is None}
        self._stamp = stamp


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """One at a time, so that no key is lost when two people make one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        yield


def _write(path: Path, records: list[KeyRecord]) -> None:
    mask = os.umask(0o077)
    try:
        write_whole(path, json.dumps([asdict(record) for record in records], indent=1) + "\n")
    finally:
        os.umask(mask)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
