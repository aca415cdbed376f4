"""`weft topology`: what this host, or those named, look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from weft.cli.hosts.options import chosen_hosts, dimension_options, host_options
from weft.cli.values import CARD, WORKERS
from weft.launch.command import Command
from weft.launch.config import LaunchConfig


@click.command("topology")
@host_options
@click.option("--per-host", type=WORKERS, metavar="N", help="Workers on each host, for the dimensions.")
@dimension_options
@click.option("--interface", type=CARD, metavar="CARD", help="The network card to use, against our choice.")
@click.option("--allow-uneven", is_flag=True, help="Show hosts that differ without complaint.")
@click.option("--json", "as_json", is_flag=True, help="Print it as data.")
def command(hosts: str | None, hostfile: Path | None, as_json: bool, **options: Any) -> None:
    """Show sockets, NUMA domains, cores, accelerators and network cards, and how they form dimensions."""
    from weft.launch.run import dry_run
    from weft.topology.tree import render_tree

    config = LaunchConfig(
        command=Command("command", "true"),
        hosts=chosen_hosts(hosts, hostfile),
        engine="ssh" if hosts or hostfile else "local",
        **options,
    )
    plan = dry_run(config).plan
    described = [site.named for site in plan.sites]
    routes = {host.name: host.interface for host in plan.hosts if host.interface and len(plan.hosts) > 1}
    if as_json:
        data = {
            "hosts": [host.to_json() for host in described],
            "routes": routes,
            "leader": plan.leader_host,
            "dimensions": {**vars(plan.dimensions), "text": str(plan.dimensions)},
        }
        click.echo(json.dumps(data, indent=2))
        return
    click.echo(render_tree(described, leader=plan.leader_host if routes else None, routes=routes))
    click.echo(
        f"dimensions {plan.dimensions} (accelerators x hosts x racks x aisles), world of {plan.world_size}"
    )
