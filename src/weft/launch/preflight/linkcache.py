"""Measured links, kept on disk for an hour, so that only the first run on some hosts waits for a measurement."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path

from weft.files import write_whole
from weft.launch.preflight.speeds import MeasuredLink

VALID_S = 3600.0


def fingerprint(hosts: Collection[Sequence[object]]) -> str:
    """A name for these hosts with their addresses and cards, in whatever order they were given."""
    return hashlib.sha256(json.dumps(sorted(map(list, hosts), key=str)).encode()).hexdigest()[:32]


def load(key: str, folder: Path, now: float) -> tuple[MeasuredLink, ...] | None:
    """Return what was measured within the last hour, if anything."""
    try:
        data = json.loads((folder / f"{key}.json").read_text())
        if not 0 <= now - data["measured_at"] < VALID_S:
            return None
        return tuple(MeasuredLink(**link) for link in data["links"])
    except (OSError, ValueError, KeyError, TypeError):  # absent, or not ours
        return None


def newest(folder: Path) -> dict[tuple[str, str], tuple[MeasuredLink, float]]:
    """Return the newest measurement of each link that any run has made here, with its time in s since 1970."""
    found: dict[tuple[str, str], tuple[MeasuredLink, float]] = {}
    for path in folder.glob("*.json") if folder.is_dir() else ():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            data = json.loads(path.read_text())
            for entry in data["links"]:
                link, pair = MeasuredLink(**entry), (entry["source"], entry["target"])
                if pair not in found or found[pair][1] < data["measured_at"]:
                    found[pair] = link, float(data["measured_at"])
    return found


def save(key: str, links: Collection[MeasuredLink], folder: Path, now: float) -> None:
    """Keep a measurement; a folder that cannot be written to costs only the time of the next one."""
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"measured_at": now, "links": [asdict(link) for link in links]})
        write_whole(folder / f"{key}.json", text)  # two launchers may write at once


def forget(key: str, folder: Path) -> None:
    """Forget a measurement after which a pair has failed."""
    with contextlib.suppress(OSError):
        (folder / f"{key}.json").unlink()
