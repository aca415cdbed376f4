"""The output of each rank over the logs of several first pods: nothing twice; pure.

A first pod that goes on with the run of a lost one prints the output of the other pods' workers again, from the first
byte, or from one that a note tells where it was too much. What was read from the log of the lost pod is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_LEFT_OUT = re.compile(rb"weft: (\d+) bytes are left out here; [^\n]*\n")


class _Lives(msgspec.Struct):
    ranks: tuple[int, ...] = ()
    lives: int = 0


class _Control(msgspec.Struct):
    known: dict[str, _Lives] = {}


class RankOutput:
    """The bytes of each rank that were passed on, and those that come again."""

    def __init__(self) -> None:
        self._passed: dict[int, int] = {}  # bytes, of the present agents' hosts
        self._again: dict[int, int] = {}  # bytes still to be left out
        self._fresh: set[int] = set()  # ranks of which nothing came again yet
        self._lives: dict[str, int] = {}  # agents that each host has had

    def note_lives(self, control: bytes) -> None:
        """Take in the control file of the run: a host whose agent is another one begins its output anew."""
        try:
            known = msgspec.json.decode(control, type=_Control).known
        except msgspec.MsgspecError:
            return  # the rest of it is still to come
        for name, host in known.items():
            if self._lives.get(name, host.lives) != host.lives:
                self._passed.update(dict.fromkeys(host.ranks, 0))
            self._lives[name] = host.lives

    def again(self, ranks: Iterable[int]) -> None:
        """Expect the output of these ranks again."""
        self._fresh = set(ranks)
        self._again = {rank: self._passed.get(rank, 0) for rank in self._fresh}

    def new_in(self, rank: int, data: bytes) -> bytes:
        """Return what was not passed on before."""
        if rank in self._fresh:
            self._fresh.discard(rank)
            note = _LEFT_OUT.match(data)
            if note is not None and int(note[1]) <= self._again[rank]:
                self._again[rank] -= int(note[1])
                data = data[note.end() :]
            elif note is not None:
                self._again[rank] = 0
        skipped = min(self._again.get(rank, 0), len(data))
        if skipped:
            self._again[rank] -= skipped
            data = data[skipped:]
        self._passed[rank] = self._passed.get(rank, 0) + len(data)
        return data
