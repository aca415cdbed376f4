"""The options by which every verb names its hosts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from weft.cli.paths import ExistingFile
from weft.cli.values import WORKERS
from weft.errors import HostListError
from weft.topology.hostlist import HostEntry, parse_hosts, read_hostfile

HOSTFILE = ExistingFile("a text file")
F = TypeVar("F", bound=Callable[..., Any])


def host_options(function: F) -> F:
    """Add -H and --hostfile."""
    function = click.option(
        "--hostfile",
        type=HOSTFILE,
        metavar="FILE",
        help="Hosts, one a line: `a`, `a slots=4` or `a:4`.",
    )(function)
    return click.option(
        "-H",
        "--hosts",
        metavar="a,b:4",
        help="Hosts, each with its number of workers if it is not the default.",
    )(function)


def dimension_options(function: F) -> F:
    """Add the options that declare dimensions."""
    for name, text in (
        ("--aisles", "Aisles."),
        ("--racks", "Racks in an aisle."),
        ("--hosts-per-rack", "Hosts in a rack."),
        ("--accelerators", "Accelerators (workers) in a host."),
    ):
        function = click.option(name, type=WORKERS, metavar="N", help=f"Declared dimension: {text}")(function)
    return function


def chosen_hosts(hosts: str | None, hostfile: Path | None) -> tuple[HostEntry, ...]:
    """The hosts that were named, if any."""
    if hosts is not None and hostfile is not None:
        raise HostListError("hosts must be named once, got both -H and --hostfile; drop one")
    if hosts is not None:
        return parse_hosts(hosts)
    return read_hostfile(hostfile) if hostfile is not None else ()
