"""Models that are a user's own code, packed as one zip: the store keeps them, and knows what they say of themselves.

Their `custom.json` has `task`, `classes` and `code`, the folder of their `deploy.py`. Nothing here unpacks or runs
them.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from weft.errors import ModelError
from weft.serve.card import Card

ABOUT = "custom.json"
_LARGEST_ABOUT = 4 << 20  # bytes
_TASKS = {"classification": "classify", "detection": "detect"}


def is_custom(path: Path) -> bool:
    """Return whether a file is to be kept as a custom model."""
    return path.suffix == ".zip"


def custom_card(path: Path) -> Card:
    """Return what a packed custom model says of itself, or refuse another zip."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.getinfo(ABOUT).file_size > _LARGEST_ABOUT:
                raise ValueError(f"{ABOUT} is too large")
            found = json.loads(archive.read(ABOUT))
            archive.getinfo(f"{found['code']}/deploy.py")
            labels = tuple(str(one) for one in found["classes"])
            task = _TASKS.get(str(found["task"]), "tensor")
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, NotImplementedError) as error:
        raise ModelError(
            f"{path} must be a trained custom model, got another file: {error}; train it with --custom"
        ) from error
    return Card(task=task, labels=labels, notes="a custom model: its own deploy.py answers")
