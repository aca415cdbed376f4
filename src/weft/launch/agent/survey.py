"""The survey of a host before a run: its topology, its versions, its limits, its clock."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.topology.host import Host
from weft.version import __version__


@dataclass(frozen=True, kw_only=True)
class Survey:
    """One host's description, as it travels from its agent to the launcher."""

    host: Host
    python: str
    torch: str | None
    weft: str
    executable: str
    clock_s: float  # the host's idea of the time when it answered
    open_files: int
    locked_bytes: int  # -1 for no limit
    rdma: bool = False  # has an InfiniBand or RoCE card
    reached_at: str | None = None  # the address at which ssh reached it

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "host": self.host.to_json()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Survey:
        names = cls.__dataclass_fields__
        return cls(**{k: v for k, v in data.items() if k in names} | {"host": Host.from_json(data["host"])})


def survey() -> Survey:
    """Describe this host."""
    from weft.topology.detect import detect

    connection = os.environ.get("SSH_CONNECTION", "").split()
    return Survey(
        host=detect(),
        python=".".join(map(str, sys.version_info[:3])),
        torch=_torch_version(),
        weft=__version__,
        executable=sys.executable,
        clock_s=time.time(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        locked_bytes=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        rdma=any(Path("/sys/class/infiniband").glob("*")),
        reached_at=connection[2] if len(connection) == 4 else None,
    )


def _torch_version() -> str | None:
    """Torch's version, read off the folder its installer left: importing it takes seconds.

    Even importlib.metadata takes a third of an agent's whole start.
    """
    for entry in sys.path:
        with contextlib.suppress(OSError):
            for folder in Path(entry or ".").iterdir():
                if folder.name.startswith("torch-") and folder.suffix == ".dist-info":
                    return folder.stem.removeprefix("torch-")
    return None
