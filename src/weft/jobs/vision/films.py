"""The answers of an inference on a film, read from the outputs of its job, which nobody has checked. Blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.jobs.vision.worker import CAPTIONED, FRAMES


def film_frames(outputs: Path) -> tuple[dict[str, Any], ...]:
    """Return what was seen in each frame; nothing while there is no such file."""
    path = outputs / FRAMES
    try:
        found = {} if path.is_symlink() else json.loads(path.read_bytes())
        return tuple(one for one in found.get("frames", ()) if isinstance(one, dict))
    except (OSError, ValueError, AttributeError):
        return ()


def film_actions(outputs: Path) -> tuple[dict[str, Any], ...]:
    """Return the actions that were found, if it was a model of actions that looked."""
    path = outputs / FRAMES
    try:
        found = {} if path.is_symlink() else json.loads(path.read_bytes())
        return tuple(one for one in found.get("actions", ()) if isinstance(one, dict))
    except (OSError, ValueError, AttributeError):
        return ()


def captioned_film(outputs: Path) -> Path | None:
    """Return the film that came out, if it is a plain file."""
    path = outputs / CAPTIONED
    return None if path.is_symlink() or not path.is_file() else path
