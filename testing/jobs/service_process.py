"""A job service in a process of its own, to be killed: `python -m testing.jobs.service_process FOLDER ADDRESS`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from weft.jobs.service.config import ServiceConfig
from weft.jobs.service.service import JobService
from weft.jobs.store.database import Database


class ServiceProcess:
    """A service that a test starts and kills."""

    def __init__(self, folder: Path, address: str) -> None:
        command = [sys.executable, "-m", "testing.jobs.service_process", str(folder), address]
        with (folder / f"service-{os.urandom(4).hex()}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=Path(__file__).parents[2]
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End it without a warning."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it politely."""
        self._process.terminate()
        self._process.wait(30)


async def serve(folder: Path, address: str) -> None:
    """Run a service until it is killed."""
    config = ServiceConfig(folder=folder / "data", tick_s=0.2, stop_grace_s=1.0)
    service = JobService(config, Database.open(address))
    async with service.running():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
