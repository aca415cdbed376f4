"""The options by which every verb that starts workers says where and how, and the request they add up to."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import click

from weft.cli.hosts.options import F, chosen_hosts, dimension_options, host_options
from weft.cli.paths import ExistingFile, OutputFolder
from weft.cli.values import CARD, COUNT, INTERPRETER, PORT, WORKERS, Checked, Seconds, Text, WorkersPerHost
from weft.collectives.choices import parse_mode, parse_wire
from weft.errors import RankfileError, UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig
from weft.text import shorten

# In the order in which --help lists them.
_OPTIONS = (
    click.option("-n", "--workers", type=WORKERS, metavar="WORKERS", help="Workers in all."),
    click.option(
        "--per-host",
        "--nproc-per-node",
        "per_host",
        type=WorkersPerHost(),
        metavar="N",
        help="Workers on each host: a number, `gpu`, `cpu` or `auto`.",
    ),
    host_options,
    click.option(
        "--engine",
        type=click.Choice(["auto", "local", "ssh", "mpi", "slurm", "kubernetes", "pods"]),
        default="auto",
        help="What starts the workers.",
    ),
    click.option(
        "--mode",
        type=Checked(parse_mode),
        metavar="MODE",
        help="How gradients are reduced, per dimension (see docs/reference/modes.md).",
    ),
    click.option(
        "--wire",
        type=Checked(parse_wire),
        metavar="WIRE",
        help="How gradients travel between hosts: fp32, bf16, fp16 or int8 (see docs/reference/modes.md).",
    ),
    click.option(
        "--replace",
        metavar="BACKEND",
        help='Give scripts that ask torch for this backend ("gloo") ours in its place.',
    ),
    click.option(
        "--report", type=COUNT, metavar="N", help="Print every N steps where communication spent its time."
    ),
    click.option(
        "--trace",
        type=Text("a file", "trace.json"),
        metavar="FILE",
        help="Write a timeline of all ranks for ui.perfetto.dev.",
    ),
    click.option(
        "--verify",
        type=COUNT,
        metavar="N",
        help="Do every Nth all_reduce again by a plain way, and stop if the results differ.",
    ),
    click.option(
        "--debug", is_flag=True, help="Compare what all ranks call before it is done, and name both sides."
    ),
    click.option("--tcp", is_flag=True, help="Keep to TCP even where there is a faster fabric."),
    click.option(
        "--mpiarg", "mpi_args", multiple=True, metavar="ARG", help="Pass to mpirun; may be given again."
    ),
    click.option(
        "--rankfile",
        type=ExistingFile("a text file"),
        metavar="FILE",
        help="Take hosts, ranks and cores from this file.",
    ),
    click.option(
        "--rank-order",
        type=click.Choice(["host", "round-robin"]),
        default="host",
        help="Ranks in a block per host, or dealt.",
    ),
    dimension_options,
    click.option(
        "--allow-uneven", is_flag=True, help="Let hosts differ, and have different numbers of workers."
    ),
    click.option(
        "--env", "env", multiple=True, metavar="K=V", help="Set for every worker; K alone carries yours."
    ),
    click.option("--python", type=INTERPRETER, metavar="PATH", help="The interpreter on every host."),
    click.option(
        "--interface", type=CARD, metavar="CARD", help="The network card to use, against our choice."
    ),
    click.option(
        "--port", "--master-port", "port", type=PORT, metavar="PORT", help="Where workers meet on the leader."
    ),
    click.option(
        "--run-dir",
        type=OutputFolder(),
        metavar="DIR",
        help="Keep plan, logs and outcome here (weft-runs/<time>-<name>).",
    ),
    click.option(
        "--grace",
        "grace_s",
        type=Seconds(),
        default=3.0,
        metavar="S",
        help="Seconds between asking a worker to end and ending it.",
    ),
    click.option(
        "--lost-after",
        "lost_after_s",
        type=Seconds(above=0),
        default=2.5,
        metavar="S",
        help="Seconds of silence after which a host is lost.",
    ),
    click.option(
        "--no-pin", "pin", is_flag=True, flag_value=False, default=True, help="Do not bind workers to cores."
    ),
    click.option("--skip-checks", is_flag=True, help="Skip the preflight of a run on several hosts."),
    click.option("-v", "--verbose", is_flag=True, help="Show the checks and the commands."),
)


def launch_options(function: F) -> F:
    """Add the options of a launch: where, how many, by what."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def launch_config(command: Command, options: dict[str, Any]) -> LaunchConfig:
    """The typed request behind the flags; those that are not about launching are left alone."""
    given = {name: value for name, value in options.items() if name in _FIELDS}
    given |= {
        "hosts": chosen_hosts(options["hosts"], options["hostfile"]),
        "env": tuple(map(_variable, options["env"])),
        "rankfile": _read_rankfile(options["rankfile"]) if options["rankfile"] else None,
        "trace": Path(options["trace"]) if options["trace"] is not None else None,
    }
    return LaunchConfig(command=command, **given)


_FIELDS = {field.name for field in dataclasses.fields(LaunchConfig)} - {"command"}


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise UsageError(f"--env must look like K=V or K, got {shorten(text)}; write --env NAME=value")
    if not equals:
        if name not in os.environ:
            raise UsageError(f"--env {name} must be set here to be carried, got nothing; write {name}=value")
        value = os.environ[name]
    return name, value


def _read_rankfile(path: Path) -> Any:
    from weft.documents import read_text
    from weft.topology.rankfile import parse_rankfile

    return parse_rankfile(read_text(path, error=RankfileError), str(path))
