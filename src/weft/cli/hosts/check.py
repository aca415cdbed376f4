"""`weft check`: hosts, and the network between them, before anything runs there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from weft.cli.hosts.options import chosen_hosts, host_options
from weft.cli.values import CARD, INTERPRETER, PORT
from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig


@click.command("check")
@host_options
@click.option(
    "--engine",
    type=click.Choice(["ssh", "kubernetes"]),
    default="ssh",
    help="What would start the workers; for kubernetes, what the cluster allows is checked.",
)
@click.option("--interface", type=CARD, metavar="CARD", help="The network card to use, against our choice.")
@click.option("--port", type=PORT, metavar="PORT", help="A port that must be free on the first host.")
@click.option("--python", type=INTERPRETER, metavar="PATH", help="The interpreter on every host.")
@click.option("--allow-uneven", is_flag=True, help="Let hosts differ.")
@click.option("--links/--no-links", default=True, help="Measure every link (the default), or skip that.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as data.")
@click.option("-v", "--verbose", is_flag=True, help="A row for every host, and the round trips.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    hosts: str | None,
    hostfile: Path | None,
    engine: str,
    links: bool,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Check ssh, versions, cards, clocks and limits of some hosts, and measure every link between them.

    A run on several hosts does the same first, and measures links that were not measured within the last hour.
    Exit code 2 says that a run would fail.
    """
    if engine == "kubernetes":
        from weft.cli.training.cluster import check_cluster

        if hosts or hostfile:
            raise UsageError("--engine kubernetes lets the cluster choose the hosts, got hosts; drop -H")
        check_cluster(ctx, as_json, None, {})
    from weft.launch import preflight

    entries = chosen_hosts(hosts, hostfile)
    if not entries:
        raise UsageError("weft check must be given hosts, got none; use -H host1,host2 or --hostfile FILE")
    config = LaunchConfig(command=Command("command", "true"), hosts=entries, engine="ssh", **options)
    report = preflight.check(
        config, measure="always" if links else "never", progress=preflight.progress_on(sys.stderr)
    )
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        click.echo(preflight.render_report(report, verbose=verbose))
    ctx.exit(0 if report.ok else 2)
