"""The server processes of deployments: `weft serve`, or the server of a custom model, on a port of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from weft.jobs.data.custom_server import spawn_custom
from weft.jobs.data.deployment_records import Deployment
from weft.jobs.data.serving import serve_command
from weft.jobs.service.attempts.processes import is_alive
from weft.jobs.service.attempts.system_user import SystemUser
from weft.serve.store import Store

STOP_S = 10.0


class DeploymentServers:
    """Starts and ends the servers of deployments, each with a folder of its own."""

    def __init__(self, folder: Path, store: Store) -> None:
        self._folder, self._store = folder, store
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def reap(self, known: Deployment) -> None:
        """Collect a server that has ended, so that it counts as ended."""
        child = self._children.get(known.id)
        if child is not None:
            child.poll()

    async def start(self, known: Deployment, user: SystemUser | None) -> int:
        """Start the server of a deployment, custom code as a system user; return its pid."""
        process = await asyncio.to_thread(self._spawn, known, user)
        self._children[known.id] = process
        return process.pid

    def _spawn(self, known: Deployment, user: SystemUser | None) -> subprocess.Popen[bytes]:
        home = self._ready_file(known).parent
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._ready_file(known).unlink(missing_ok=True)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("WEFT_", "MLFLOW_"))}
        entry = self._store.resolve(f"{known.model}@{known.version}")
        if entry.is_custom:
            self._store.verify(entry)
            return spawn_custom(entry.path, self._ready_file(known), self._log_file(known), env, user)
        command = serve_command(
            sys.executable,
            store=self._store.folder,
            model=known.model,
            alias=known.alias,
            ready_file=self._ready_file(known),
        )
        with self._log_file(known).open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=home,
                env=env,
                start_new_session=True,
            )

    async def end(self, known: Deployment) -> None:
        """End a server by SIGTERM, and by SIGKILL if it takes too long."""
        pid, ticks = known.pid, known.pid_started
        child = self._children.pop(known.id, None)
        if pid is None or ticks is None:
            return
        deadline = asyncio.get_running_loop().time() + STOP_S
        asked = signal.SIGTERM
        while is_alive(pid, ticks):
            if child is not None and child.poll() is not None:
                break
            if asked is signal.SIGTERM or asyncio.get_running_loop().time() > deadline:
                with suppress(ProcessLookupError):
                    os.kill(pid, asked)
                asked = signal.SIGKILL
            await asyncio.sleep(0.05)
        if child is not None:
            await asyncio.to_thread(child.wait)

    async def port(self, known: Deployment) -> int | None:
        """Return the port on which a server answers; None while it does not."""
        return await asyncio.to_thread(_read_port, self._ready_file(known))

    async def last_words(self, known: Deployment) -> str:
        """Return the last line that a server printed."""
        return await asyncio.to_thread(_last_words, self._log_file(known))

    def _ready_file(self, known: Deployment) -> Path:
        return self._folder / str(known.id) / "ready.json"

    def _log_file(self, known: Deployment) -> Path:
        return self._folder / str(known.id) / "serve.log"


def _read_port(path: Path) -> int | None:
    """Return the port that a server says it answers on."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    match = re.search(r":(\d+)$", str(found.get("http", "")))
    return int(match[1]) if match else None


def _last_words(path: Path) -> str:
    try:
        lines = path.read_bytes()[-4000:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip()[:500] for line in reversed(lines) if line.strip()), "")
