"""The log of one container over any number of connections: every line once, in order.

The cluster puts a time before each line. After a break, the log is asked for from the last second that was read, and
lines that came before are left out: those with earlier times, and as many with the last time as were read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_TIME = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ")


class ContainerLogReader:
    """A reader of one container's log, which knows what it has read."""

    def __init__(self) -> None:
        self._last = b""  # the time of the last line
        self._with_last = 0  # lines that had it

    @property
    def since(self) -> str | None:
        """The second from which the log is to be asked for; None for all of it."""
        match = _TIME.match(self._last + b" ")
        return None if match is None else (match[1] + match[3]).decode()

    def lines(self, pieces: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yield the new lines of one connection, those of each piece together, with their ends, without their times."""
        to_skip, last = self._with_last, _ordered(self._last)
        pending = b""
        for piece in pieces:
            *whole, pending = (pending + piece).split(b"\n")
            found: list[bytes] = []
            for line in whole:
                match = _TIME.match(line)
                if match is None:  # a line that the cluster itself has put there
                    continue
                time = line[: match.end() - 1]
                if last:  # until there is something newer than what the connection before this one gave
                    now = _ordered(time)
                    if now < last or (now == last and to_skip):
                        to_skip -= now == last
                        continue
                    last = last if now == last else b""
                self._with_last = self._with_last + 1 if time == self._last else 1
                self._last = time
                found.append(line[match.end() :] + b"\n")
            if found:
                yield found


def _ordered(time: bytes) -> bytes:
    """Return a time in a form that sorts as the times do: nine digits of a second."""
    match = _TIME.match(time + b" ")
    if match is None:
        return b""
    fraction = (match[2] or b".")[1:].ljust(9, b"0")
    return match[1] + b"." + fraction
