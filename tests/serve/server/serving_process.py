"""`weft serve` as a process, and a few ways to call it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from weft.serve.client import Client

WEFT = str(Path(sys.executable).with_name("weft"))


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Server:
    """A server that listens."""

    process: subprocess.Popen[str]
    url: str
    grpc: str
    log: Path
    screen: list[str] = field(default_factory=list)  # what it printed when it started

    @property
    def address(self) -> str:
        return urlsplit(self.url).netloc

    def client(self, **options: Any) -> Client:
        return Client(self.url, **options)

    def call(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def post(self, path: str, data: Any, **headers: str) -> Answer:
        return self.call("POST", path, json.dumps(data), **headers)

    def events(self) -> list[dict[str, Any]]:
        """What it has logged so far."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def logged(self, **details: Any) -> dict[str, Any]:
        """The event with these details; it may be a moment after what it tells of."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for event in self.events():
                if details.items() <= event.items():
                    return event
            time.sleep(0.01)
        raise AssertionError(f"no event {details} in\n{self.log.read_text()}")

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(200)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code


@dataclass
class Starter:
    """Starts servers, and ends those that are still there."""

    folder: Path
    _servers: list[Server] = field(default_factory=list)

    def __call__(self, *args: str, **env: str) -> Server:
        number = len(self._servers)
        log, ready = self.folder / f"log{number}", self.folder / f"ready{number}.json"
        command = [WEFT, "serve", *args, "--port", "0", "--grpc-port", "0", "--ready-file", str(ready)]
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        with log.open("w") as stderr:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env={**kept, **env},
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
        assert process.stdout is not None
        server = Server(process, "", "", log)
        self._servers.append(server)
        for line in process.stdout:
            server.screen.append(line.rstrip("\n"))
            if line.startswith("listening on"):
                break
        assert server.screen, log.read_text()
        assert server.screen[-1].startswith("listening on"), log.read_text()
        while not ready.exists():  # it is written right after the line
            assert process.poll() is None, log.read_text()
        told = json.loads(ready.read_text())
        server.url, server.grpc = told["http"], told.get("grpc", "")
        return server

    def close(self) -> None:
        for server in self._servers:
            server.stop()
