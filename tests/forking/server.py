"""A process with torch loaded, of which the launchers and the workers of many tests are forks."""

from __future__ import annotations

import gc
import importlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Self

from tests.forking.programs import ForkingPopen, Program, fork

ROOT = Path(__file__).parents[2]
WEFT = Path(sys.executable).with_name("weft")
PRELOADED = (
    "torch",
    "torch._dynamo",  # DistributedDataParallel and the optimizers import it
    "torch.nn.parallel",
    "weft.collectives.watching.group",
    "weft.launch.agent.agent",
    "weft.cli",
)
_MOST_BYTES = 1 << 20  # of a request


class ForkServer:
    """Runs `weft` with workers that are forks; one call at a time."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forking.server", str(theirs.fileno())],
                # Read when OpenMP is loaded: the workers of a test are more than there are cores.
                env={**kept, "PYTHONPATH": str(ROOT), "OMP_WAIT_POLICY": "PASSIVE"},
                cwd=ROOT,
                pass_fds=(theirs.fileno(),),
            )
        self._socket.settimeout(300)  # until torch is loaded, on a busy machine
        self._hear()

    def weft(
        self, args: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `weft` to its end, as subprocess.run does."""
        with TemporaryFile() as out, TemporaryFile() as err:
            request = json.dumps({"args": list(args), "env": dict(env), "cwd": str(cwd)}).encode()
            socket.send_fds(self._socket, [request], [out.fileno(), err.fileno()])
            self._socket.settimeout(60)
            pid = self._hear()
            self._socket.settimeout(timeout)
            try:
                code = self._hear()
            except TimeoutError:
                os.kill(pid, 9)  # what is below it ends with it
                self._socket.settimeout(60)
                self._hear()
                raise subprocess.TimeoutExpired(["weft", *args], timeout, _read(out), _read(err)) from None
            return subprocess.CompletedProcess(["weft", *args], code, _read(out), _read(err))

    def _hear(self) -> int:
        answer = self._socket.recv(64)
        assert answer, "the fork server ended"
        return int(answer)

    def close(self) -> None:
        self._socket.close()
        self._process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _read(file: object) -> str:
    file.seek(0)  # type: ignore[attr-defined]
    text: str = file.read().decode(errors="replace")  # type: ignore[attr-defined]
    return text


def serve(connection: socket.socket) -> None:
    """Fork a launcher for each request; tell its pid, and when it has ended, its code."""
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or the collector of each fork would copy every page
    connection.send(b"0")
    while True:
        request, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 2)
        if not request:
            return
        out, err = descriptors
        told = json.loads(request)
        pid = fork(
            Program(str(WEFT), False, tuple(told["args"])),
            told["env"],
            partial(_become_launcher, told["cwd"], out, err),
        )
        os.close(out)
        os.close(err)
        connection.send(str(pid).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become_launcher(cwd: str, out: int, err: int) -> None:
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, max(out, err, 64) + 1)
    os.chdir(cwd)
    subprocess.Popen = ForkingPopen  # type: ignore[misc]


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
