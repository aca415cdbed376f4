"""Folders carried to hosts that do not share them, and back, over the ssh connections that the launcher uses.

carry({"hosts": ["h1"], "take": ["/d/code"], "make": ["/d/outputs"]})    -> {"h1": ["/d/code", "/d/outputs"]}
carry({"hosts": ["h1"], "give": ["/d/outputs"]})                         what is there comes back to the same path
carry({"hosts": ["h1"], "remove": ["/d/code"]})

Requests and answers are plain data, so that `python -m weft.launch.carry` can carry as another user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from weft.errors import ConnectError, WeftError
from weft.launch.agent.folders import APPEND, GIVE, MAKE, REMOVE, TAKE
from weft.launch.engines.ssh import explain_ssh, prepare_ssh, remote_command, ssh_argv

MOST_AT_ONCE = 8  # hosts
LOST_AFTER_S = 2.5  # as the launcher has it: connections are shared by those who have the same patience


def carry(request: Mapping[str, Any], python: str = sys.executable) -> dict[str, list[str]]:
    """Carry out a request on all of its hosts; return, by host, the folders that were carried or made."""
    hosts: Sequence[str] = request["hosts"]
    prepare_ssh()
    with ThreadPoolExecutor(MOST_AT_ONCE, "carry") as pool:
        return dict(zip(hosts, pool.map(lambda host: _on_host(host, request, python), hosts), strict=True))


def _on_host(host: str, request: Mapping[str, Any], python: str) -> list[str]:
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
                done = _talk(request, process.stdin, process.stdout)
        except (OSError, ValueError, tarfile.TarError, EOFError):
            done = None
        if process.returncode or done is None:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip()
            raise ConnectError(explain_ssh(host, process.returncode, said, python))
    return done


def _talk(request: Mapping[str, Any], source: IO[bytes], out: IO[bytes]) -> list[str]:
    asked = {key: request[key] for key in (TAKE, MAKE, GIVE, REMOVE, APPEND) if key in request}
    source.write(json.dumps(asked).encode() + b"\n")
    source.flush()
    answer = json.loads(out.readline())
    if GIVE in asked:
        _receive(answer["given"], out)
        return list(answer["given"])
    if REMOVE in asked or APPEND in asked:
        return list(answer.get("removed", answer.get("appended")))
    lacking: list[str] = answer["lacking"]
    if lacking:
        with tarfile.open(fileobj=source, mode="w|") as archive:
            for index, path in enumerate(lacking):
                archive.add(path, arcname=str(index))
        source.flush()
        json.loads(out.readline())
    return [*lacking, *answer["made"]]


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
    try:
        print(json.dumps({"carried": carry(json.load(sys.stdin))}))
    except WeftError as error:
        print(json.dumps({"error": str(error)}))


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
