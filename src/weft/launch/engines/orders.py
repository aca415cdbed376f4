"""The orders for every worker of a run, in one environment variable, where mpirun or srun starts them.

It needs no shared folder, and it is plain letters, so that no shell and no launcher on its way can garble it.
The words of a world repeat themselves: a thousand workers fit in some ten kilobytes.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

VARIABLE = "WEFT_ORDERS"
ROOM_BYTES = 128 * 1024 - len(VARIABLE) - 2  # Linux takes no longer variable


@dataclass(frozen=True, kw_only=True)
class WorkerOrders:
    """One worker's own part. Cores are given where whatever starts it does not bind it."""

    env: Mapping[str, str]
    cpus: tuple[int, ...] = ()
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Orders:
    """A whole run; the workers in the order of their ranks."""

    cwd: str
    env: Mapping[str, str]
    grace_s: float
    memory_bytes: int = 0  # that each worker may hold; 0: as much as there is
    reached: bool = False  # the starter signals a worker and its children too, not only what it started
    workers: tuple[WorkerOrders, ...]

    def seal(self) -> str:
        data = json.dumps(asdict(self), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(zlib.compress(data, 9)).decode()

    @classmethod
    def unseal(cls, text: str) -> Orders:
        data: dict[str, Any] = json.loads(zlib.decompress(base64.urlsafe_b64decode(text)))
        workers = tuple(
            WorkerOrders(env=worker["env"], cpus=tuple(worker["cpus"]), numa=tuple(worker["numa"]))
            for worker in data["workers"]
        )
        return cls(**{**data, "workers": workers})
