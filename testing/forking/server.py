"""A process with torch loaded, of which the programs of many tests are forks, and the commands that ask for them."""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, Self

from testing.cluster.namespaces import enter_namespace, entered
from testing.forking import programs
from testing.forking.client import NOT_FORKED
from testing.forking.learned import Learned, import_all
from testing.forking.programs import FOLDER_PREFIX, WEFT, ForkingPopen, Program, become, fork, program_of

ROOT = Path(__file__).parents[2]
COMMANDS = ("weft", "python", "python3")
PRELOADED = (
    "torch",
    "torch._dynamo",  # DistributedDataParallel and the optimizers import it
    "torch.nn.parallel",
    "torch.distributed.checkpoint",
    "weft.collectives.watching.group",
    "weft.elastic.agent.main",
    "weft.launch.agent.agent",
    "weft.cli.training.run",
)
# What loads of tables and of exported models take seconds for: tests of these ask for it.
TABLES = ("sklearn.ensemble", "sklearn.linear_model", "numba", "pandas", "pyarrow.parquet")
# What trains on top of torch.distributed.
TRAINERS = (
    "fsspec.core",
    "torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.optim",
    "torch.distributed.tensor.parallel",
)
EXPORTS = ("onnx", "onnxscript", "torch.onnx._internal.exporter._core")  # onnxruntime has a thread
# Read when the libraries are loaded. The workers of a test are more than there are cores, and a peer that is lost is an
# ordinary event, of which torch's store would print pages.
ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),
    "OMP_WAIT_POLICY": "PASSIVE",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
_MOST_BYTES = 1 << 18  # of a request: a command line and an environment
_PR_SET_PDEATHSIG = 1


def write_commands(folder: Path) -> tuple[Path, Path]:
    """Write commands that ask the server of a folder; return their folder, and that of what they note."""
    commands, pids = folder / "bin", folder / "pids"
    commands.mkdir()
    pids.mkdir()
    source = Path(__file__).with_name("client.py").read_text()
    for name in COMMANDS:
        commands.joinpath(name).write_text(f"#!{sys.executable} -IS\n{source}")
        commands.joinpath(name).chmod(0o755)
    return commands, pids


def ask_to_load(address: str, modules: Sequence[str]) -> None:
    """Have a server import modules, beside those that all servers have; return when it has all of them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(300)  # on a busy machine
        connection.connect(address)
        connection.send(json.dumps({"load": modules}).encode())
        assert connection.recv(64), "the fork server ended"


def ask_to_be_on(address: str, holder: int, path: Path, log: Path) -> int:
    """Have a server put a fork of itself on a virtual host, where it serves at a path; return the fork's pid."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection, log.open("w") as output:
        connection.settimeout(300)  # on a busy machine
        connection.connect(address)
        request = json.dumps({"host": holder, "path": str(path)}).encode()
        socket.send_fds(connection, [request], [output.fileno()])
        answer = connection.recv(64)
    assert answer, "the fork server ended"
    return int(answer)


class ForkServer:
    """Runs `weft` and Python programs as forks, as many at once as are asked for."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix=FOLDER_PREFIX)
        self.bin, self._pids = write_commands(Path(self._folder.name))
        self.weft, self.python = str(self.bin / "weft"), str(self.bin / "python")
        self._address = str(Path(self._folder.name, "socket"))
        self._loaded: set[str] = set()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._address)
            listener.listen(64)  # who connects before torch is loaded waits
            kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "testing.forking.server", str(listener.fileno()), self._folder.name],
                env={**kept, **ENVIRONMENT},
                cwd=ROOT,
                pass_fds=(listener.fileno(),),
            )

    def load(self, *modules: str) -> Self:
        """Import modules into the server, for all programs that are started from now on."""
        if not set(modules) <= self._loaded:
            ask_to_load(self._address, modules)
            self._loaded.update(modules)
        return self

    def on_host(self, holder: int, path: Path, log: Path) -> int:
        """Serve on a virtual host as well, for commands that find the socket at a path; return the server's pid."""
        return ask_to_be_on(self._address, holder, path, log)

    def run(
        self, args: Sequence[str], *, env: Mapping[str, str], cwd: Path, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run `weft` to its end."""
        return subprocess.run(
            [self.weft, *args],
            env=dict(env),
            cwd=cwd,
            timeout=timeout,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )

    def pid_of(self, command: subprocess.Popen[str]) -> int:
        """Return the pid of the program that a command asked for, once the program runs."""
        return int((self._pids / str(command.pid)).read_text())

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Server:
    """Forks a program for each connection; tells its pid, and when it has ended, its code."""

    def __init__(self, listener: socket.socket, learned: Learned | None = None) -> None:
        self._listener, self._learned = listener, learned
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def serve(self) -> NoReturn:
        """Answer requests until this process is ended."""
        while True:
            for key, _ in self._selector.select():
                key.data()

    def load(self, modules: Sequence[str]) -> None:
        """Import modules, for all forks from now on."""
        for name in modules:
            importlib.import_module(name)
        _freeze()

    def _learn(self) -> None:
        if self._learned is not None and (due := self._learned.due()):
            import_all(due)
            _freeze()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        request, descriptors, _, _ = socket.recv_fds(connection, _MOST_BYTES, 3)
        told = json.loads(request or b"{}")
        if "load" in told:
            self.load(told["load"])
            connection.send(b"loaded")
        if "host" in told:
            self._learn()
            self._serve_on(told["host"], told["path"], connection, descriptors[0])
        program = _asked(told["argv"]) if "argv" in told else None
        if program is not None:
            self._start(program, told, connection, descriptors)
        else:
            if "argv" in told:
                connection.send(NOT_FORKED)
            connection.close()
        for descriptor in descriptors:
            os.close(descriptor)

    def _serve_on(self, holder: int, path: str, connection: socket.socket, log: int) -> None:
        """Fork a server into the namespaces of a host; who kills the host ends it, and we hear of it."""
        # The names lead elsewhere once the first namespace is entered.
        doors = [os.open(f"/proc/{holder}/ns/{kind}", os.O_RDONLY) for kind in ("net", "uts", "ipc", "mnt")]
        with entered(holder, "pid"):
            pid = os.fork()
            if pid == 0:
                try:
                    _be_on_host(doors, path, log)
                finally:
                    os._exit(1)
        for door in doors:
            os.close(door)
        handle = os.pidfd_open(pid)
        self._selector.register(handle, selectors.EVENT_READ, partial(self._host_ended, pid, handle))
        connection.send(str(pid).encode())

    def _host_ended(self, pid: int, handle: int) -> None:
        os.waitpid(pid, 0)
        self._selector.unregister(handle)
        os.close(handle)

    def _start(
        self, program: Program, told: dict[str, Any], connection: socket.socket, streams: Sequence[int]
    ) -> None:
        self._learn()
        pid = fork(program, told["env"], partial(_take_place, told["cwd"], streams, os.getpid()))
        with suppress(BrokenPipeError):  # who asked is gone already, which `_left` will hear of
            connection.send(str(pid).encode())
        handle = os.pidfd_open(pid)
        ended = partial(self._ended, pid, handle, connection)
        self._selector.register(handle, selectors.EVENT_READ, ended)
        self._selector.register(connection, selectors.EVENT_READ, partial(self._left, pid, connection))

    def _left(self, pid: int, connection: socket.socket) -> None:
        """End a program whose caller was killed."""
        self._selector.unregister(connection)
        os.kill(pid, signal.SIGKILL)

    def _ended(self, pid: int, handle: int, connection: socket.socket) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._selector.unregister(handle)
        os.close(handle)
        if connection in self._selector.get_map():
            self._selector.unregister(connection)
            with suppress(BrokenPipeError):
                connection.send(str(code).encode())
        connection.close()


def _freeze() -> None:
    gc.collect()
    gc.freeze()  # or the collector of each fork would copy every page


def _be_on_host(doors: Sequence[int], path: str, log: int) -> NoReturn:
    """Enter the namespaces of a host, and serve there."""
    os.setsid()
    for number in (1, 2):
        os.dup2(log, number)
    for door in doors:
        enter_namespace(door)
    os.chdir(ROOT)  # a change of mounts leads to their root
    os.closerange(3, 1024)
    _end_with_parent()
    # Each host would import what is learned for a few workers: the hosts have what was known when they were made.
    _Server(_listener(path)).serve()


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _asked(argv: Sequence[str]) -> Program | None:
    name, *args = argv
    return program_of([WEFT if name == "weft" else sys.executable, *args])


def _take_place(cwd: str, streams: Sequence[int], parent: int) -> None:
    """Put a fork where its caller is; it ends with the server, however that ends."""
    _end_with_parent()
    if os.getppid() != parent:
        os._exit(1)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)
    os.chdir(cwd)
    subprocess.Popen = ForkingPopen  # type: ignore[misc]
    os.execv = become  # type: ignore[assignment]


def _listener(where: str) -> socket.socket:
    """Return the socket of a descriptor that was inherited, or a new one at a path."""
    if where.isdigit():
        return socket.socket(fileno=int(where))
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"{where}.new")
    listener.listen(64)  # who connects before torch is loaded waits
    Path(f"{where}.new").rename(where)
    return listener


if __name__ == "__main__":
    _end_with_parent()
    programs.learned = Learned(Path(sys.argv[2], "learned"))
    server = _Server(_listener(sys.argv[1]), programs.learned)
    server.load(PRELOADED)
    server.serve()
