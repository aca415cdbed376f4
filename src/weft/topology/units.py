"""Sizes and speeds as people read them."""

from __future__ import annotations


def format_bytes(count: int) -> str:
    """`139.8 GiB`; always in GiB, so that hosts can be compared at a glance."""
    return f"{count / 2**30:.1f} GiB"


def format_speed(mbps: int) -> str:
    """`25 Gbit/s`, `2.5 Gbit/s`, `100 Mbit/s`."""
    return f"{mbps / 1000:g} Gbit/s" if mbps >= 1000 else f"{mbps} Mbit/s"
