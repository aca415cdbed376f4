"""Parts that several requests and answers share: the error, numbers that may not be finite, cursors."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from weft.documents import Document

# JSON has no NaN: a single value that is not finite is one of three words; in a list it is null, and listed beside.
NotFinite = Literal["NaN", "Infinity", "-Infinity"]
Scalar = float | NotFinite
Text = Annotated[str, Meta(max_length=250)]
Limit = Annotated[int, Meta(ge=1, le=1000)]
Id = Annotated[int, Meta(ge=0, le=2**53 - 1)]
Whole = Annotated[int, Meta(ge=-(2**53) + 1, le=2**53 - 1)]  # what JavaScript can count
Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
UserName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$")]
Role = Literal["viewer", "member", "admin"]


class RequestProblem(msgspec.Struct, frozen=True):
    """One thing that is wrong with a request."""

    path: str  # the field: resources.memory
    must: str
    got: str
    next: str


class ErrorDetail(msgspec.Struct, frozen=True):
    """The reason why a request was refused or failed."""

    code: str  # for programs: not-found, wrong-state, bad-spec
    text: str  # for people: must, got, next
    problems: tuple[RequestProblem, ...] = ()


class ApiError(msgspec.Struct, frozen=True):
    """The answer to a request that was refused or failed."""

    error: ErrorDetail


class NoQuery(Document, frozen=True):
    """A query without parameters."""


class PageQuery(Document, frozen=True):
    """One page of a list."""

    limit: Limit = 100
    cursor: Text | None = None  # `next` of the page before


def scalar(value: float | None) -> Scalar | None:
    """Return a number as the API writes it."""
    if value is None or -1.7976931348623157e308 <= value <= 1.7976931348623157e308:
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
