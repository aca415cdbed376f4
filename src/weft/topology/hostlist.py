"""Host lists, as people write them: `-H a,b:4,node[01-04]` or a hostfile.

A count after a host is its number of workers; without one the planner decides. The hostfiles of
Open MPI and Horovod (`host slots=4`), of MPICH (`host:4`) and plain lists are all read. Where a host is shared with
others, a line of a hostfile also tells which part of it is the run's: `host slots=2 cpus=0-7 gpus=0,1`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from pathlib import Path

from weft.errors import HostListError
from weft.topology.cpulist import parse_cpulist
from weft.topology.hostrange import expand_range

# A name never starts with a dash: ssh would take it for an option.
_USER = r"(?:[A-Za-z0-9_][\w.-]*@)?"
_NAME = re.compile(rf"{_USER}[A-Za-z0-9_][\w.-]*", re.ASCII)
_ADDRESS = re.compile(rf"({_USER})([^\[\]@]*:[^\[\]@]*:[^\[\]@]*)", re.ASCII)  # IPv6: two colons or more
_ADDRESS_IN_BRACKETS = re.compile(rf"({_USER})\[([^\[\]]*:[^\[\]]*)\](?::(.*))?", re.ASCII)
_SCOPE = re.compile(r"[A-Za-z0-9][\w.-]{0,14}", re.ASCII)  # Linux's names of cards, and their numbers
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[\]]*\])")
_SETTINGS = re.compile(r"(\S+)((?:\s+(?:slots|max[_-]slots|cpus|gpus)\s*=\s*\S+)+)")
_SETTING = re.compile(r"(\S+?)\s*=\s*(\S+)")


MOST_WORKERS = 65_536  # of one run: more is a slip of the keyboard
NO_GPUS = "none"


@dataclass(frozen=True)
class HostEntry:
    """One host as it was asked for."""

    name: str  # what ssh is given: may carry a user, never a port
    workers: int | None = None  # None: as many as the planner finds right
    cpus: tuple[int, ...] = ()  # logical processors of the run, shared out to its workers in order; none: all
    gpus: tuple[int, ...] | None = None  # devices of the run, shared out in the same way; None: all

    def to_line(self) -> str:
        """Return the entry as a line of a hostfile."""
        settings = {
            "slots": None if self.workers is None else str(self.workers),
            "cpus": ",".join(map(str, self.cpus)) or None,
            "gpus": None if self.gpus is None else ",".join(map(str, self.gpus)) or NO_GPUS,
        }
        return " ".join([self.name, *(f"{key}={value}" for key, value in settings.items() if value)])


def parse_hosts(text: str) -> tuple[HostEntry, ...]:
    """Read `a,b:4,user@c,[fe80::1]:2,node[01-04]:8`."""
    if not text.strip():
        raise HostListError(f"a host list must name at least one host, got {text!r}; write host1,host2")
    hosts: dict[str, HostEntry] = {}
    for item in _split(text):
        _add(hosts, _entries(item, where=text), where=f" in {text!r}", form="{}:{}")
    return tuple(hosts.values())


def read_hostfile(path: str | Path) -> tuple[HostEntry, ...]:
    """Read one host a line: `host`, `host slots=4` or `host:4`; `#` starts a comment."""
    hosts: dict[str, HostEntry] = {}
    for number, line in enumerate(_read(path).splitlines(), start=1):
        try:
            if content := line.partition("#")[0].strip():
                _add(hosts, _line_entries(content), where="", form="{} slots={}")
        except HostListError as error:
            raise HostListError(f"{path}:{number}: {error}") from None
    if not hosts:
        raise HostListError(
            f"{path}: a hostfile must name at least one host, got none; write one host a line"
        )
    return tuple(hosts.values())


def expand_hosts(text: str) -> tuple[str, ...]:
    """Name the hosts of a list in Slurm's style: `node[01-02,7],login` is node01, node02, node7, login."""
    return tuple(name for item in _split(text) for name in _names(item, where=text))


def _split(text: str) -> list[str]:
    return [item.strip() for item in _COMMA_OUTSIDE_BRACKETS.split(text)]


def _line_entries(content: str) -> list[HostEntry]:
    if line := _SETTINGS.fullmatch(content):
        given = dict(_SETTING.findall(line[2]))
        gpus = given.get("gpus")
        return [
            replace(
                entry,
                workers=_workers(given["slots"], content) if "slots" in given else entry.workers,
                cpus=_numbers("cpus", given["cpus"], content) if "cpus" in given else (),
                gpus=() if gpus == NO_GPUS else None if gpus is None else _numbers("gpus", gpus, content),
            )
            for entry in _entries(line[1], where=content)
        ]
    if len(content.split()) > 1:
        raise HostListError(f"a line must look like 'host' or 'host slots=4', got {content!r}; mend the line")
    return _entries(content, where=content)


def _entries(item: str, where: str) -> list[HostEntry]:
    """All hosts of one item of a list; more than one where it holds a range."""
    if not item:
        raise HostListError(f"each entry must name a host, got an empty one in {where!r}; remove the comma")
    if address := _ADDRESS.fullmatch(item):
        return [HostEntry(address[1] + _ipv6(address[2]))]
    if address := _ADDRESS_IN_BRACKETS.fullmatch(item):
        return [HostEntry(address[1] + _ipv6(address[2]), _workers(address[3], item))]
    name, colon, count = item.partition(":")
    workers = _workers(count if colon else None, item)
    return [HostEntry(each, workers) for each in _names(name, where)]


def _ipv6(text: str) -> str:
    _, percent, scope = text.partition("%")
    if percent and not _SCOPE.fullmatch(scope):
        raise HostListError(
            f"the scope of an address must be the name of a network card, got {scope!r} in {text!r}; write fe80::1%eth0"
        )
    try:
        IPv6Address(text)
    except ValueError as error:
        raise HostListError(f"an address must be well formed, got {text!r}; write [fe80::1]:2") from error
    return text


def _workers(text: str | None, item: str) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,5}", text, re.ASCII):
        raise HostListError(
            f"the workers of a host must be a whole number of at least 1, got {text!r} in {item!r}; "
            "mend the number, or leave it out"
        )
    return int(text)


def _numbers(what: str, text: str, line: str) -> tuple[int, ...]:
    try:
        numbers = parse_cpulist(text)
    except ValueError:
        numbers = ()
    if not numbers or len(set(numbers)) < len(numbers):
        raise HostListError(
            f"the {what} of a host must be a list such as 0-3,8 that names each once, got {text!r} in {line!r}; "
            "mend the list"
        )
    return numbers


def _names(text: str, where: str) -> list[str]:
    names = expand_range(text)
    if not _NAME.fullmatch(names[0]):
        raise HostListError(
            f"a host must be a name, an address or a range, got {text!r} in {where!r}; "
            "write host1, user@host1, 10.0.0.1, [fe80::1] or node[01-04]"
        )
    return names


def _add(hosts: dict[str, HostEntry], entries: Iterable[HostEntry], where: str, form: str) -> None:
    for entry in entries:
        # The user plays no part: a host reached twice would be given its workers twice.
        key = entry.name.rpartition("@")[2].lower()
        if first := hosts.get(key):
            total = (first.workers or 1) + (entry.workers or 1)
            raise HostListError(
                f"each host must be named once, got {entry.name} twice{where}; "
                f"write {form.format(first.name, total)} for {_count(total)} workers"
            )
        hosts[key] = entry


def _count(number: int) -> str:
    return {2: "two", 3: "three", 4: "four"}.get(number, str(number))


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise HostListError(
            f"a hostfile must be a text file that can be read, got {path} ({reason}); "
            "check the path or use -H host1,host2"
        ) from None
