"""Settings that clients of other products keep with a data set: JSON by name, seen by whoever sees the data set."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from weft.vision.library.tables import setting


def read_setting(connection: sa.Connection, dataset_id: str, name: str) -> Any:
    """Return a value, None where there is none."""
    mine = (setting.c.dataset_id == dataset_id) & (setting.c.name == name)
    text = connection.scalar(sa.select(setting.c.text).where(mine))
    return json.loads(text) if text is not None else None


def read_settings(connection: sa.Connection, ids: Sequence[str], name: str) -> dict[str, Any]:
    """Return the values of one name by data set."""
    wanted = sa.select(setting.c.dataset_id, setting.c.text).where(
        setting.c.name == name, setting.c.dataset_id.in_(ids)
    )
    return {row.dataset_id: json.loads(row.text) for row in connection.execute(wanted)}


def write_setting(connection: sa.Connection, dataset_id: str, name: str, value: Any) -> None:
    """Keep a value; None forgets it."""
    mine = (setting.c.dataset_id == dataset_id) & (setting.c.name == name)
    connection.execute(sa.delete(setting).where(mine))
    if value is not None:
        row = {"dataset_id": dataset_id, "name": name, "text": json.dumps(value)}
        connection.execute(sa.insert(setting), row)
