"""Ids as these clients know them: UUIDs for everything, made of what our things are called by. Pure."""

from __future__ import annotations

import uuid

from weft.jobs.doors.access import DoorError

_SPACE = uuid.UUID("7fd6b7a2-30c3-4a8e-8bcb-6b1b39b0a4f1")  # of names
# The first half of the ids of numbered things, by kind; the second half is the number.
_NUMBERED = {"dltask": 0x77656674_646C_4001, "webapi": 0x77656674_7761_4002, "project": 0x77656674_7067_4003}


def numbered_id(kind: str, number: int) -> str:
    """Return the id of a job, a deployment or a project."""
    return str(uuid.UUID(int=(_NUMBERED[kind] << 64) | (0x8 << 60) | number))


def number_of(kind: str, text: str) -> int:
    """Return the number behind an id; a plain number is taken, too."""
    if text.isdecimal() and len(text) <= 15:
        return int(text)
    try:
        whole = uuid.UUID(text).int
    except ValueError:
        whole = 0
    if whole >> 64 != _NUMBERED[kind] or whole >> 60 & 0xF != 0x8:
        raise missing(kind, text)
    return whole & ((1 << 60) - 1)


def named_id(kind: str, *names: object) -> str:
    """Return the id of a thing that is known by names: a tag of a data set, a version of a model."""
    return str(uuid.uuid5(_SPACE, "\0".join((kind, *map(str, names)))))


def library_id(text: str) -> str:
    """Return an id of the library with the dashes that a UUID has."""
    return str(uuid.UUID(text)) if len(text) == 32 else text


def plain_id(text: str) -> str:
    """Return an id as the library writes it; names stay names."""
    try:
        return uuid.UUID(text).hex if len(text) == 36 else text
    except ValueError:
        return text


def missing(kind: str, text: str) -> DoorError:
    """Return the error about a thing that is not there, or not for this caller."""
    return DoorError("not-found", f"Could not find {kind} {text[:80]!r}; list them to see their ids")
