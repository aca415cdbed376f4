"""`weft rankfile`: which rank runs on which cores, in the file that Open MPI reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from weft.cli.hosts.options import chosen_hosts, dimension_options, host_options
from weft.cli.paths import OutputFile, write_output
from weft.cli.values import WORKERS
from weft.launch.command import Command
from weft.launch.config import LaunchConfig


@click.command("rankfile")
@host_options
@click.option("-n", "--workers", type=WORKERS, metavar="WORKERS", help="Workers in all.")
@click.option("--per-host", type=WORKERS, metavar="N", help="Workers on each host.")
@dimension_options
@click.option(
    "--rank-order",
    type=click.Choice(["round-robin", "host"]),
    default="round-robin",
    help="Ranks dealt over the hosts, as ddlrun did, or in a block per host.",
)
@click.option("--allow-uneven", is_flag=True, help="Let hosts differ.")
@click.option(
    "-o", "--output", type=OutputFile(), metavar="FILE", help="Write it here instead of printing it."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as data.")
def command(
    hosts: str | None, hostfile: Path | None, output: Path | None, as_json: bool, **options: Any
) -> None:
    """Write the rank file for some hosts; `weft run --rankfile` and `mpirun --rankfile` read it."""
    from dataclasses import asdict

    from weft.launch.run import dry_run
    from weft.topology.rankfile import render

    config = LaunchConfig(
        command=Command("command", "true"),
        hosts=chosen_hosts(hosts, hostfile),
        engine="ssh" if hosts or hostfile else "local",
        **options,
    )
    rankfile = dry_run(config).plan.rankfile
    assert rankfile is not None  # every host was surveyed
    text = json.dumps(asdict(rankfile), indent=2) + "\n" if as_json else render(rankfile)
    if output is None:
        click.echo(text, nl=False)
        return
    write_output(output, text)
