"""`weft scale`: other hosts for an elastic run while it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import click

from weft.cli.hosts.options import HOSTFILE, chosen_hosts
from weft.cli.values import COUNT
from weft.errors import UsageError
from weft.text import plural


@click.command("scale")
@click.argument("run")
@click.option("-H", "--hosts", metavar="HOSTS", help="The hosts it shall have from now on: a,b:4.")
@click.option("--hostfile", type=HOSTFILE, metavar="FILE", help="The same, one a line.")
@click.option("--add", metavar="HOSTS", help="Hosts to take in.")
@click.option("--remove", metavar="HOSTS", help="Hosts whose workers shall leave.")
@click.option("--pods", type=COUNT, metavar="N", help="Pods it shall have from now on, on Kubernetes.")
@click.option("--json", "as_json", is_flag=True, help="Print the hosts it shall have as data.")
def command(
    run: str,
    hosts: str | None,
    hostfile: Path | None,
    add: str | None,
    remove: str | None,
    pods: int | None,
    as_json: bool,
) -> None:
    """Give an elastic run other hosts. RUN is its run directory, or `latest`.

    New hosts are taken in at the end of a step; the workers of hosts that are dropped leave at the end of a step. With
    neither, tells which hosts are wanted.
    """
    from weft.elastic.launcher.scale import scale, wanted_hosts
    from weft.launch.control.rundir import find_run
    from weft.topology.hostlist import parse_hosts

    folder = find_run(run)
    if pods is not None:
        if hosts or hostfile or add is not None or remove is not None:
            raise UsageError("a run has pods or hosts, got --pods and hosts; drop one")
        from weft.launch.engines.kubernetes.run import scale_pods

        scale_pods(folder, pods)
        click.echo(json.dumps({"pods": pods}) if as_json else plural(pods, "pod"))
        return
    if (hosts or hostfile) and (add is not None or remove is not None):
        raise UsageError("hosts must be named in all (-H) or by what changes (--add, --remove), got both")
    whole = chosen_hosts(hosts, hostfile)
    if whole or add is not None or remove is not None:
        scale(
            folder,
            whole,
            add=() if add is None else parse_hosts(add),
            remove=() if remove is None else parse_hosts(remove),
        )
    wanted = wanted_hosts(folder)
    if as_json:
        click.echo(json.dumps([{"host": entry.name, "workers": entry.workers} for entry in wanted], indent=2))
        return
    for entry in wanted:
        click.echo(entry.name if entry.workers is None else f"{entry.name} slots={entry.workers}")
