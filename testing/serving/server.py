"""`weft serve` as a process, for tests and benchmarks: started, awaited, called and ended."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from weft.serve.client import Client

WEFT = str(Path(sys.executable).with_name("weft"))
ENDS_S = 200  # a server that was told to end must have ended after so long


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

    def wait_until_listening(self, ready: Path) -> None:
        """Read what the server prints until it listens, and its addresses from the ready file."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.screen.append(line.rstrip("\n"))
            if line.startswith("listening on"):
                break
        else:
            raise RuntimeError(f"{self.process.args!r} did not start:\n{self.log.read_text()}")
        while not ready.exists():  # it is written right after the line
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args!r} ended at once:\n{self.log.read_text()}")
            time.sleep(0.001)
        told = json.loads(ready.read_text())
        self.url, self.grpc = told["http"], told.get("grpc", "")

    def stop(self) -> int:
        """End the server if it is still there, with its last answers; return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            code = self.process.wait(ENDS_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
        return code


@contextmanager
def serving(
    folder: Path, *args: str, name: str = "server", grpc: bool = True, env: Mapping[str, str] = os.environ
) -> Iterator[Server]:
    """Start `weft serve` in a folder, wait until it listens, and end it.

    `name` sets the files of one server apart from those of others in the folder.
    """
    log, ready = folder / f"{name}.log", folder / f"{name}.ready.json"
    ready.unlink(missing_ok=True)
    calls = ("--grpc-port", "0") if grpc else ("--no-grpc",)
    command = [WEFT, "serve", *args, "--port", "0", *calls, "--ready-file", str(ready)]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    server = Server(process, "", "", log)
    try:
        server.wait_until_listening(ready)
        yield server
    finally:
        server.stop()


@dataclass
class Starter:
    """Starts servers with little of the environment, and ends those that are still there."""

    folder: Path
    _stack: ExitStack = field(default_factory=ExitStack)
    _started: int = 0

    def __call__(self, *args: str, **env: str) -> Server:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        name = f"server{self._started}"
        self._started += 1
        return self._stack.enter_context(serving(self.folder, *args, name=name, env={**kept, **env}))

    def close(self) -> None:
        self._stack.close()
