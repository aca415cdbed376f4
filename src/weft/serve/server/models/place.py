"""The place of one name in a server: its source, its options, and the models that answer for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from weft.serve.server.models.model import Model
from weft.serve.server.models.sources import ModelSource
from weft.serve.server.models.tally import Tally
from weft.serve.server.options import ModelOptions, Traffic

TALLIES_KEPT = 100  # of a name: versions whose figures are still told after others took their place


@dataclass
class ModelPlace:
    """One name, with the models that answer for it."""

    source: ModelSource
    options: ModelOptions
    traffic: Traffic = field(default_factory=Traffic)
    also: tuple[str, ...] = ()  # versions to keep loaded besides
    pinned: str | None = None  # the version that the name means, in place of the source's
    wanted: bool = True
    expected: bool = True  # the server is not ready without it
    default: Model | None = None
    canary: Model | None = None
    shadow: Model | None = None
    versions: dict[str, Model] = field(default_factory=dict)
    stamps: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, tuple[Any, str]] = field(
        default_factory=dict
    )  # versions that did not load: stamp, reason
    reason: str = ""
    logged: str = ""  # the last reason that was logged
    tallies: dict[str, Tally] = field(default_factory=dict)  # of all versions that were ever loaded
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def tally(self, version: str) -> Tally:
        """Return the figures of a version, which go on where they were when it is loaded again."""
        found = self.tallies.pop(version, None) or Tally()
        self.tallies[version] = found
        gone = [each for each in self.tallies if each not in self.versions and each != version]
        for each in gone[: max(0, len(self.tallies) - TALLIES_KEPT)]:
            del self.tallies[each]
        return found


@dataclass(frozen=True)
class Role:
    """A part that a version of a name plays."""

    part: str  # default, canary, shadow or also
    which: str | None


def roles_of(place: ModelPlace) -> list[Role]:
    """Return the parts that are to be played for a name."""
    roles = [Role("default", place.pinned)]
    if place.traffic.canary is not None:
        roles.append(Role("canary", place.traffic.canary))
    if place.traffic.shadow is not None:
        roles.append(Role("shadow", place.traffic.shadow))
    return roles + [Role("also", which) for which in place.also]
