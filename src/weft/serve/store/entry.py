"""One version of a model in a store, and where a store is by default."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from weft.files import data_folder
from weft.serve.card import Card, read_card
from weft.serve.store.catalogue import CUSTOM, VersionRecord
from weft.serve.store.custom import custom_card


@dataclass(frozen=True)
class Entry:
    """One version of a model in a store."""

    path: Path  # the ONNX file, with weights that lie outside it beside it; or the zip of a custom model
    name: str
    version: int
    aliases: tuple[str, ...]
    record: VersionRecord

    @property
    def sha256(self) -> str:
        return self.record.sha256

    @property
    def size(self) -> int:
        return self.record.size

    @property
    def created(self) -> str:
        return self.record.created

    @cached_property
    def card(self) -> Card:
        return custom_card(self.path) if self.is_custom else read_card(self.path)

    @property
    def is_custom(self) -> bool:
        """Return whether the model is a user's own code, and no graph."""
        return self.path.name == CUSTOM

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "aliases": list(self.aliases),
            "path": str(self.path),
            "sha256": self.sha256,
            "size": self.size,
            "created": self.created,
        }


def default_store() -> Path:
    """$WEFT_STORE, else a folder of the user's own."""
    if chosen := os.environ.get("WEFT_STORE"):
        return Path(chosen)
    return data_folder() / "models"
