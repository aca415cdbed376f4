"""Code and data of an attempt on hosts that do not share the service's folders: carried there, and results back.

A host is asked for each folder; where the folder is shared it is there, and nothing travels. What was carried or made
on which host is noted in the attempt's folder, so that outputs come back at the end and nothing stays behind there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.errors import ConnectError
from weft.files import write_whole
from weft.jobs.service.attempts.command import ADVICE_FILE
from weft.jobs.service.attempts.system_user import SystemUser, acting_as, as_user, user_environment
from weft.jobs.store.attempts import AttemptShare
from weft.launch.agent.here import is_this_machine

NOTE = "carried.json"
CARRY_S = 3600.0  # for the slowest host to have its data


def note_of(folder: Path, checkpoints: Path, data: Iterable[str]) -> dict[str, Any]:
    """Return what an attempt needs on other hosts: its code and fetched data, and folders for what it writes."""
    made = [str(folder / "outputs"), str(checkpoints)]
    return {"take": [str(folder / "code"), *sorted(set(data))], "make": made, "hosts": {}}


def bring_to(
    hosts: Sequence[str], folder: Path, note: Mapping[str, Any] | None, owner: SystemUser | None
) -> dict[str, list[str]]:
    """Bring an attempt's folders to hosts that lack them; return, by host, those that it lacked.

    ConnectError names a host that does not take them.
    """
    others = [host for host in hosts if not is_this_machine(host)]
    known = note if note is not None else read_note(folder)
    if known is None:
        return {}
    carried: dict[str, list[str]] = {}
    if others:
        # Checkpoints of earlier attempts go along, where there are any.
        past = [path for path in known["make"] if any(Path(path).iterdir())]
        carried = _carry({"hosts": others, "take": [*known["take"], *past], "make": known["make"]}, owner)
    hosts_then = {**known["hosts"], **{host: paths for host, paths in carried.items() if paths}}
    with acting_as(owner):  # kept also where nothing travelled: the run may grow onto other hosts
        write_whole(folder / NOTE, json.dumps({**known, "hosts": hosts_then}))
    return carried


def bring_back(folder: Path, owner: SystemUser | None) -> None:
    """Fetch outputs and checkpoints from the hosts that had folders of their own, and remove those there."""
    note = read_note(folder)
    for host, paths in note["hosts"].items() if note is not None else ():
        mine = [path for path in note["make"] if path in paths] if note is not None else []
        if mine:
            _carry({"hosts": [host], "give": mine}, owner)
        gone = [*mine, *(path for path in paths if Path(path).is_relative_to(folder)), str(folder)]
        _carry({"hosts": [host], "remove": gone}, owner)


def add_advice(folder: Path, line: Mapping[str, Any], owner: SystemUser | None) -> None:
    """Add a line to the file of advice of an attempt, here and on hosts that have folders of their own."""
    path, note = folder / ADVICE_FILE, read_note(folder)
    with acting_as(owner):
        number = len(path.read_bytes().splitlines()) + 1 if path.exists() else 1
        data = json.dumps({"number": number, **line}) + "\n"
        with path.open("a") as file:
            file.write(data)
    if note is not None and note["hosts"]:
        _carry({"hosts": list(note["hosts"]), "append": {str(path): data}}, owner)


def read_note(folder: Path) -> dict[str, Any] | None:
    """Return what was carried for an attempt; None: nothing was."""
    try:
        found = json.loads((folder / NOTE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("hosts"), dict) else None


def new_hosts(before: Sequence[AttemptShare], after: Sequence[AttemptShare]) -> list[str]:
    """Return the hosts that a run grows onto."""
    known = {share.host for share in before}
    return [share.host for share in after if share.host not in known]


def _carry(request: Mapping[str, Any], owner: SystemUser | None) -> dict[str, list[str]]:
    identity = as_user(owner)
    if not identity:
        from weft.launch.carry import carry

        return carry(request)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "weft.launch.carry"],
        input=json.dumps(request),
        env=user_environment(os.environ, owner),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=CARRY_S,
        check=False,
        **identity,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = {"error": done.stderr.strip()[-500:] or f"carrying ended with code {done.returncode}"}
    if "error" in answer:
        raise ConnectError(answer["error"])
    return dict(answer["carried"])
