"""Ranges of hosts in Slurm's style: `node[01-03,7]` is node01, node02, node03, node7."""

from __future__ import annotations

import re
from itertools import product
from math import prod

from weft.errors import HostListError

MOST_HOSTS = 65536  # a slip such as node[0-9999999] must not fill the memory

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def expand_range(text: str) -> list[str]:
    """All names of one host or range; several brackets multiply, as in rack[1-2]node[1-8]."""
    # Splitting at a group keeps it: texts stand at even places, the insides of brackets at odd ones.
    choices = [
        _numbers(part, text) if place % 2 else [part] for place, part in enumerate(_BRACKETS.split(text))
    ]
    _check_size(prod(map(len, choices)), text)
    return ["".join(parts) for parts in product(*choices)]


def _numbers(inside: str, text: str) -> list[str]:
    """The numbers of one bracket, each as wide as its range begins: `08-10,7` is 08, 09, 10, 7."""
    numbers: list[str] = []
    for part in inside.split(","):
        span = _SPAN.fullmatch(part.strip())
        first, last = (int(span[1]), int(span[2] or span[1])) if span else (1, 0)
        if span is None or first > last:
            raise HostListError(f"a range must look like node[01-04,7], got {text!r}; mend the brackets")
        _check_size(len(numbers) + last - first + 1, text)
        numbers += [f"{number:0{len(span[1])}}" for number in range(first, last + 1)]
    return numbers


def _check_size(hosts: int, text: str) -> None:
    if hosts > MOST_HOSTS:
        raise HostListError(f"a range must name at most {MOST_HOSTS} hosts, got {text!r}; mend the brackets")
