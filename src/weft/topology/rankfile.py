"""Rank files: which rank runs on which host and cores, in the form Open MPI and `ddlrun` share.

    #host = host1,host2
    #aisles = 1
    ...

    rank 0=host1 slot=0:0-7
    rank 2=host1 slot=0:8-15

The header is a comment to `mpirun`; it keeps the dimensions beside the ranks they were made for.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count, groupby, pairwise
from typing import Literal

from weft.errors import RankfileError
from weft.topology.cpulist import spans
from weft.topology.dimensions import Dimensions, infer_dimensions
from weft.topology.host import Host
from weft.topology.placement import format_slot, place

RankOrder = Literal["round-robin", "host"]

_HEADER = ("aisles", "racks", "nodes", "accelerators", "sockets", "cores")
_HEADER_LINE = re.compile(rf"#\s*(host|{'|'.join(_HEADER)})\s*=(.*)")
_RANK_LINE = re.compile(r"rank\s+([0-9]{1,9})\s*=\s*([^\s=]+)\s+slots?\s*=\s*(.+)")
_SLOT = re.compile(r"([0-9]{1,9})\s*:\s*([0-9,\s-]+)")


@dataclass(frozen=True, kw_only=True)
class RankLine:
    """One worker: its rank, its host, its cores within one socket."""

    rank: int
    host: str
    socket: int
    first_core: int
    last_core: int


@dataclass(frozen=True, kw_only=True)
class Rankfile:
    """A whole world. A number of the header is None where the file does not say, or hosts differ."""

    hosts: tuple[str, ...]
    lines: tuple[RankLine, ...]  # in the order of the file: host by host
    aisles: int | None = None
    racks: int | None = None  # per aisle
    nodes: int | None = None  # hosts per rack
    accelerators: int | None = None  # workers per host
    sockets: int | None = None  # per host
    cores: int | None = None  # per socket


def deal(counts: Sequence[tuple[str, int]], order: RankOrder) -> tuple[tuple[int, ...], ...]:
    """Return, for each host, the ranks of its local workers 0, 1, 2 ...

    "round-robin" deals ranks like cards over the hosts, and a host that is full is passed over;
    "host" gives each host a block.
    """
    seats = [(worker, host) for host, (_, workers) in enumerate(counts) for worker in range(workers)]
    if order == "round-robin":
        seats.sort()
    ranks: list[list[int]] = [[] for _ in counts]
    for rank, (_, host) in enumerate(seats):
        ranks[host].append(rank)
    return tuple(map(tuple, ranks))


def rankfile_for(
    hosts: Sequence[tuple[Host, int]], order: RankOrder = "round-robin", dimensions: Dimensions | None = None
) -> Rankfile:
    """The rank file for these hosts, each with its number of workers."""
    dimensions = dimensions or infer_dimensions([workers for _, workers in hosts], allow_uneven=True)
    dealt = deal([(host.name, workers) for host, workers in hosts], order)
    return Rankfile(
        hosts=tuple(host.name for host, _ in hosts),
        aisles=dimensions.aisles,
        racks=dimensions.racks,
        nodes=dimensions.hosts_per_rack,
        accelerators=dimensions.accelerators,
        sockets=_common([len(host.sockets) for host, _ in hosts]),
        cores=_common([len(host.cores_of(socket)) for host, _ in hosts for socket in host.sockets]),
        lines=tuple(
            RankLine(
                rank=rank,
                host=host.name,
                socket=placement.socket,
                first_core=placement.first_core,
                last_core=placement.last_core,
            )
            for (host, workers), ranks in zip(hosts, dealt, strict=True)
            for rank, placement in zip(ranks, place(host, workers), strict=True)
        ),
    )


def render(rankfile: Rankfile) -> str:
    """The text of the file, a block for each host."""
    numbers = {key: getattr(rankfile, key) for key in _HEADER}
    header = [f"#host = {','.join(rankfile.hosts)}"]
    header += [f"#{key} = {value}" for key, value in numbers.items() if value is not None]
    blocks = [
        [_render_line(line) for line in lines] for _, lines in groupby(rankfile.lines, lambda line: line.host)
    ]
    return "\n\n".join("\n".join(block) for block in [header, *blocks]) + "\n"


def parse_rankfile(text: str, source: str = "rankfile") -> Rankfile:
    """Read a rank file; `source` names it in errors."""
    hosts: tuple[str, ...] = ()
    header: dict[str, int] = {}
    lines: dict[int, tuple[RankLine, int]] = {}  # by rank, with the number of the line
    for number, line in enumerate(text.splitlines(), start=1):
        where = f"{source}:{number}"
        if match := _HEADER_LINE.fullmatch(line.strip()):
            if match[1] == "host":
                hosts = tuple(name.strip() for name in match[2].split(",") if name.strip())
            else:
                header[match[1]] = _header_number(match[1], match[2].strip(), where)
        elif content := line.partition("#")[0].strip():
            rank_line = _parse_line(content, where)
            if first := lines.get(rank_line.rank):
                raise RankfileError(
                    f"{where}: each rank must be given once, got rank {rank_line.rank} again "
                    f"(first on line {first[1]}); renumber one of them"
                )
            lines[rank_line.rank] = rank_line, number
    _check_whole(lines, source)
    used = tuple(dict.fromkeys(line.host for line, _ in lines.values()))
    _check_hosts(hosts or used, used, source)
    return Rankfile(hosts=hosts or used, lines=tuple(line for line, _ in lines.values()), **header)


def _common(values: Sequence[int]) -> int | None:
    """The value all share, if they do."""
    return values[0] if len(set(values)) == 1 else None


def _render_line(line: RankLine) -> str:
    slot = format_slot(line.socket, line.first_core, line.last_core)
    return f"rank {line.rank}={line.host} slot={slot}"


def _header_number(key: str, text: str, where: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise RankfileError(
            f"{where}: #{key} must be a whole number of at least 1, got {text!r}; mend the header"
        )
    return int(text)


def _parse_line(content: str, where: str) -> RankLine:
    match = _RANK_LINE.fullmatch(content)
    if match is None:
        raise RankfileError(
            f"{where}: a line must look like 'rank 0=host1 slot=0:0-7', got {content!r}; mend the line"
        )
    if match[2].startswith("+"):
        raise RankfileError(f"{where}: a host must be given by name, got {match[2]!r}; write the host's name")
    socket, first, last = _parse_slot(match[3], where)
    return RankLine(rank=int(match[1]), host=match[2], socket=socket, first_core=first, last_core=last)


def _parse_slot(text: str, where: str) -> tuple[int, int, int]:
    """Socket, first core and last core of `0:0-7`, `0:3` or `0:0-3,4-7`."""
    try:
        match = _SLOT.fullmatch(text)
        parts = spans(match[2]) if match else ()
        if match is None or not parts or any(b[0] != a[1] + 1 for a, b in pairwise(parts)):
            raise ValueError("not one stretch of cores of one socket")
    except ValueError:
        raise RankfileError(
            f"{where}: a slot must be a socket and one stretch of its cores, got 'slot={text}'; "
            "write slot=0:0-7, or slot=0:3 for one core"
        ) from None
    return int(match[1]), parts[0][0], parts[-1][1]


def _check_whole(ranks: Collection[int], source: str) -> None:
    if not ranks:
        raise RankfileError(
            f"{source}: a rank file must have a line for each rank, got none; add 'rank 0=...'"
        )
    missing = next(rank for rank in count() if rank not in ranks)
    if missing < len(ranks):
        raise RankfileError(
            f"{source}: ranks must run from 0 to {len(ranks) - 1} with none missing, got no rank {missing}; "
            "add its line or renumber the others"
        )


def _check_hosts(declared: Sequence[str], used: Sequence[str], source: str) -> None:
    if idle := [host for host in declared if host not in used]:
        raise RankfileError(
            f"{source}: each host of the header must have a rank, got none on {', '.join(idle)}; "
            "give it a rank or take it out of '#host ='"
        )
    if strange := [host for host in used if host not in declared]:
        raise RankfileError(
            f"{source}: each host must stand in the header, got {', '.join(strange)} only below it; "
            "add it to '#host ='"
        )
