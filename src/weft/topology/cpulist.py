"""Lists of small numbers as the kernel, Open MPI and people write them: `0-15,32-47`."""

from __future__ import annotations

from collections.abc import Iterable


def spans(text: str) -> tuple[tuple[int, int], ...]:
    """The first and last number of each stretch of `text`; ValueError where it is not such a list."""
    return tuple(_span(part.strip()) for part in text.split(",")) if text.strip() else ()


def parse_cpulist(text: str) -> tuple[int, ...]:
    """`0-2,8` as (0, 1, 2, 8)."""
    return tuple(number for first, last in spans(text) for number in range(first, last + 1))


def format_cpulist(numbers: Iterable[int]) -> str:
    """(0, 1, 2, 8) as `0-2,8`."""
    stretches: list[list[int]] = []
    for number in sorted(set(numbers)):
        if stretches and number == stretches[-1][-1] + 1:
            stretches[-1][1:] = [number]
        else:
            stretches.append([number])
    return ",".join("-".join(map(str, stretch)) for stretch in stretches)


def _span(text: str) -> tuple[int, int]:
    first, dash, last = text.partition("-")
    # int() would also take '+1', '1_0' and digits of other scripts.
    if not all(part.isascii() and part.isdigit() for part in ((first, last) if dash else (first,))):
        raise ValueError(f"a list of numbers must look like 0-3,8, got {text!r}")
    span = int(first), int(last or first)
    if span[0] > span[1]:
        raise ValueError(f"a range must run upwards, got {text!r}")
    return span
