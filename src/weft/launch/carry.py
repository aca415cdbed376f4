"""Folders carried to hosts that do not share them, and back, over the ssh connections that the launcher uses.

    carry(["h1"], TakeFolders(("/d/code",), ("/d/outputs",)))    -> {"h1": ("/d/code", "/d/outputs")}
    carry(["h1"], GiveFolders(("/d/outputs",)))                  what is there comes back to the same path
    carry(["h1"], RemoveFolders(("/d/code",)))

`python -m weft.launch.carry` does the same as another user: it reads a `CarryRequest` and prints a `CarryAnswer`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from weft.errors import ConnectError, MessageError, WeftError
from weft.launch.agent.folders import (
    ANSWERS,
    AppendText,
    FoldersDone,
    GiveFolders,
    LackingFolders,
    RemoveFolders,
    TakeFolders,
)
from weft.launch.engines.ssh import explain_ssh, prepare_ssh, remote_command, ssh_argv
from weft.messages import Decoder, Message, encode

MOST_AT_ONCE = 8  # hosts
LOST_AFTER_S = 2.5  # as the launcher has it: connections are shared by those who have the same patience


FoldersOrder = TakeFolders | GiveFolders | RemoveFolders | AppendText


class CarryRequest(Message, frozen=True):
    """An order for several hosts."""

    hosts: tuple[str, ...]
    order: FoldersOrder


class CarryAnswer(Message, frozen=True):
    """The folders that were carried or made, by host, or why a host did not carry out its order."""

    carried: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    error: str = ""


def carry(
    hosts: Sequence[str], order: FoldersOrder, python: str = sys.executable
) -> dict[str, tuple[str, ...]]:
    """Carry out an order on all hosts; return, by host, the folders that were carried or made."""
    prepare_ssh()
    with ThreadPoolExecutor(MOST_AT_ONCE, "carry") as pool:
        return dict(zip(hosts, pool.map(lambda host: _on_host(host, order, python), hosts), strict=True))


def _on_host(host: str, order: FoldersOrder, python: str) -> tuple[str, ...]:
    argv = ssh_argv(
        host,
        remote_command((python, "-P", "-m", "weft.launch.agent.folders")),
        config_file=os.environ.get("WEFT_SSH_CONFIG"),
        lost_after_s=LOST_AFTER_S,
    )
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process:
                done = _talk(order, process.stdin, process.stdout)
        except (OSError, MessageError, tarfile.TarError, EOFError):
            done = None
        if process.returncode or done is None:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip()
            raise ConnectError(explain_ssh(host, process.returncode, said, python))
    return done


def _talk(order: FoldersOrder, source: IO[bytes], out: IO[bytes]) -> tuple[str, ...]:
    source.write(encode(order))
    source.flush()
    match ANSWERS.decode(out.readline()):
        case LackingFolders(lacking, made):
            if lacking:
                _send(lacking, source)
                ANSWERS.decode(out.readline())
            return (*lacking, *made)
        case FoldersDone(paths):
            if isinstance(order, GiveFolders):
                _receive(paths, out)
            return paths
        case other:
            raise MessageError(f"a host must answer an order about folders, got {other}")


def _send(folders: Sequence[str], source: IO[bytes]) -> None:
    with tarfile.open(fileobj=source, mode="w|") as archive:
        for index, path in enumerate(folders):
            archive.add(path, arcname=str(index))
    source.flush()


def _receive(folders: Sequence[str], out: IO[bytes]) -> None:
    """Write what a host gives beside what is here already, which stays: the launcher's own host counts more."""
    with tarfile.open(fileobj=out, mode="r|") as archive:
        for entry in archive:
            index, _, rest = entry.name.partition("/")
            place = Path(folders[int(index)])
            entry.name = rest or "."
            if entry.isdir():
                (place / rest).mkdir(parents=True, exist_ok=True)
            elif entry.isfile() and rest and not os.path.lexists(place / rest):
                archive.extract(entry, place, filter="data")


def main() -> None:
    """Carry out the request on standard input, as the user of this process."""
    request = Decoder(CarryRequest).decode(sys.stdin.buffer.readline())
    try:
        answer = CarryAnswer(carry(request.hosts, request.order))
    except WeftError as error:
        answer = CarryAnswer(error=str(error))
    sys.stdout.buffer.write(encode(answer))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
