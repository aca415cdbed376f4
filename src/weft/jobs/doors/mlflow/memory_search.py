"""Searches among records in memory: experiments, registered models and their versions are few. Pure.

Runs are many, so the database searches them (`queries.py`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from weft.jobs.doors.access import DoorError
from weft.jobs.doors.mlflow.filters import FilterComparison, Order
from weft.jobs.doors.mlflow.messages import whole

PROMPT_TAG = "mlflow.prompt.is_prompt"  # clients ask for models that do not have it set

Record = TypeVar("Record")


@dataclass(frozen=True)
class Searchable(Generic[Record]):
    """A record with the attributes and the tags by which it can be found."""

    record: Record
    attributes: Mapping[str, Any]
    tags: Mapping[str, str]

    def fulfils(self, wanted: Iterable[FilterComparison]) -> bool:
        """Return whether all conditions hold; they are of attributes and tags alone."""
        return all(self._holds(each) for each in wanted)

    def _holds(self, wanted: FilterComparison) -> bool:
        if wanted.kind == "tag":
            value = "false" if wanted.key == PROMPT_TAG else None
            found: Any = self.tags.get(wanted.key, value)
        elif wanted.kind == "attribute":
            found = self.attributes[wanted.key]
        else:
            raise DoorError("bad", f"a search must be by attributes or tags, got {wanted.kind}s; search runs")
        if wanted.comparator == "IS NULL":
            return found is None
        return found is not None and bool(_COMPARE[wanted.comparator](found, wanted.value))


def _like(text: str, pattern: str) -> bool:
    parts = (".*" if sign == "%" else "." if sign == "_" else re.escape(sign) for sign in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda found, value: found == value,
    "!=": lambda found, value: found != value,
    "<": lambda found, value: found < value,
    "<=": lambda found, value: found <= value,
    ">": lambda found, value: found > value,
    ">=": lambda found, value: found >= value,
    "LIKE": _like,
    "ILIKE": lambda found, value: _like(found.lower(), value.lower()),
    "IN": lambda found, value: found in value,
    "NOT IN": lambda found, value: found not in value,
    "IS NOT NULL": lambda found, value: True,
}


def in_order(found: Iterable[Searchable[Record]], orders: Sequence[Order]) -> list[Record]:
    """Return records sorted by attributes, the first decides first; equal ones keep the order they come in."""
    ordered = list(found)
    for order in reversed(orders):
        if order.kind != "attribute":
            raise DoorError("bad", f"an order must be by attributes, got {order.kind}s; leave it out")
        key = order.key
        ordered.sort(key=lambda one: one.attributes[key], reverse=not order.ascending)
    return [one.record for one in ordered]


def token_of(offset: int) -> str:
    """Return the mark of the page that begins at an offset."""
    return base64.urlsafe_b64encode(str(offset).encode()).decode()


def offset_of(token: str) -> int:
    """Return where a page begins; a mark that is not ours is refused."""
    if not token:
        return 0
    try:
        offset = int(base64.urlsafe_b64decode(token.encode()))
    except ValueError:
        offset = -1
    if not 0 <= offset < 2**62:
        raise DoorError(
            "bad", f"page_token must be the one of the page before, got {token[:40]!r}; begin anew"
        )
    return offset


def count_of(given: int | str, most: int) -> int:
    """Return how many records a page may have."""
    count = whole(given, "max_results")
    if not 0 < count <= most:
        raise DoorError("bad", f"max_results must be 1 to {most}, got {count}; ask for pages")
    return count


def page_of(found: Sequence[Record], *, count: int, token: str) -> tuple[Sequence[Record], dict[str, str]]:
    """Return one page of what was found, and the answer's field that names the page after it, if there is one."""
    offset = offset_of(token)
    following = {"next_page_token": token_of(offset + count)} if len(found) > offset + count else {}
    return found[offset : offset + count], following
