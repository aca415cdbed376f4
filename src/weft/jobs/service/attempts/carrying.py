"""Code and data of an attempt on hosts that do not share the service's folders: carried there, and results back.

A host is asked for each folder; where the folder is shared it is there, and nothing travels. What was carried or made
on which host is noted in the attempt's folder, so that outputs come back at the end and nothing stays behind there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from weft.errors import ConnectError, MessageError
from weft.files import write_whole
from weft.jobs.service.attempts.command import ADVICE_FILE
from weft.jobs.service.attempts.system_user import SystemUser, acting_as, as_user, user_environment
from weft.jobs.store.attempts import AttemptShare
from weft.launch.agent.folders import AppendText, GiveFolders, RemoveFolders, TakeFolders
from weft.launch.agent.here import is_this_machine
from weft.launch.carry import CarryAnswer, CarryRequest, FoldersOrder, carry
from weft.messages import Decoder, Message, encode
from weft.reporting.advice import AdviceLine

NOTE = "carried.json"
CARRY_S = 3600.0  # for the slowest host to have its data


class CarriedFolders(Message, frozen=True):
    """The folders that an attempt needs on other hosts, and those that each host was given."""

    take: tuple[str, ...]  # its code and fetched data
    make: tuple[str, ...]  # for what it writes
    hosts: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)


def note_of(folder: Path, checkpoints: Path, data: Iterable[str]) -> CarriedFolders:
    """Return what an attempt needs on other hosts, none of which has it yet."""
    made = str(folder / "outputs"), str(checkpoints)
    return CarriedFolders((str(folder / "code"), *sorted(set(data))), made)


def bring_to(
    hosts: Sequence[str], folder: Path, note: CarriedFolders | None, owner: SystemUser | None
) -> dict[str, tuple[str, ...]]:
    """Bring an attempt's folders to hosts that lack them; return, by host, those that it lacked.

    ConnectError names a host that does not take them.
    """
    others = [host for host in hosts if not is_this_machine(host)]
    known = note if note is not None else read_note(folder)
    if known is None:
        return {}
    carried: dict[str, tuple[str, ...]] = {}
    if others:
        # Checkpoints of earlier attempts go along, where there are any.
        past = [path for path in known.make if any(Path(path).iterdir())]
        carried = _carry(others, TakeFolders((*known.take, *past), known.make), owner)
    hosts_then = {**known.hosts, **{host: paths for host, paths in carried.items() if paths}}
    with acting_as(owner):  # kept also where nothing travelled: the run may grow onto other hosts
        write_whole(folder / NOTE, encode(msgspec.structs.replace(known, hosts=hosts_then)).decode())
    return carried


def bring_back(folder: Path, owner: SystemUser | None) -> None:
    """Fetch outputs and checkpoints from the hosts that had folders of their own, and remove those there."""
    note = read_note(folder)
    if note is None:
        return
    for host, paths in note.hosts.items():
        mine = tuple(path for path in note.make if path in paths)
        if mine:
            _carry([host], GiveFolders(mine), owner)
        gone = (*mine, *(path for path in paths if Path(path).is_relative_to(folder)), str(folder))
        _carry([host], RemoveFolders(gone), owner)


def add_advice(folder: Path, action: str, rule: str, text: str, owner: SystemUser | None) -> None:
    """Add a line to the file of advice of an attempt, here and on hosts that have folders of their own."""
    path, note = folder / ADVICE_FILE, read_note(folder)
    with acting_as(owner):
        number = len(path.read_bytes().splitlines()) + 1 if path.exists() else 1
        line = AdviceLine(number, action, rule, text).encode()
        with path.open("ab") as file:
            file.write(line)
    if note is not None and note.hosts:
        _carry(list(note.hosts), AppendText({str(path): line.decode()}), owner)


def read_note(folder: Path) -> CarriedFolders | None:
    """Return what was carried for an attempt; None: nothing was."""
    try:
        return Decoder(CarriedFolders).decode((folder / NOTE).read_bytes())
    except (OSError, MessageError):
        return None


def new_hosts(before: Sequence[AttemptShare], after: Sequence[AttemptShare]) -> list[str]:
    """Return the hosts that a run grows onto."""
    known = {share.host for share in before}
    return [share.host for share in after if share.host not in known]


def _carry(hosts: Sequence[str], order: FoldersOrder, owner: SystemUser | None) -> dict[str, tuple[str, ...]]:
    identity = as_user(owner)
    if not identity:
        return carry(hosts, order)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "weft.launch.carry"],
        input=encode(CarryRequest(tuple(hosts), order)),
        env=user_environment(os.environ, owner),
        cwd="/",
        capture_output=True,
        timeout=CARRY_S,
        check=False,
        **identity,
    )
    try:
        answer = Decoder(CarryAnswer).decode(done.stdout)
    except MessageError:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        answer = CarryAnswer(error=said or f"carrying ended with code {done.returncode}")
    if answer.error:
        raise ConnectError(answer.error)
    return answer.carried
