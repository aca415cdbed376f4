"""`weft hosts`: the machines that jobs run on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from weft.cli.jobs.options import (
    HOST_NAME,
    LABEL,
    json_option,
    open_client,
    print_data,
    print_removed,
    url_option,
)
from weft.cli.jobs.printing import plain
from weft.cli.values import Text
from weft.errors import UsageError
from weft.text import format_size, format_table

if TYPE_CHECKING:
    from weft.jobs.api.types.cluster import HostView

RACK = Text("the name of a rack", "r1", like=r"[^\x00-\x1f]{1,100}")


@click.group("hosts", invoke_without_command=True)
@url_option
@json_option
@click.pass_context
def command(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """List the hosts that jobs run on; add, drain, label and remove them."""
    if ctx.invoked_subcommand is None:
        _list(url, as_json)
    elif url is not None or as_json:
        verb = ctx.invoked_subcommand
        raise UsageError(
            f"--url and --json must follow {verb}, got them before it; write weft hosts {verb} --json"
        )


@command.command("list")
@url_option
@json_option
def list_hosts(url: str | None, as_json: bool) -> None:
    """Print all hosts: what they have, what is in use, and by which jobs."""
    _list(url, as_json)


def _list(url: str | None, as_json: bool) -> None:
    with open_client(url) as client:
        hosts = client.hosts()
    if as_json:
        print_data(hosts)
        return
    if not hosts:
        click.echo("no hosts; add one with weft hosts add NAME")
        return
    click.echo("\n".join(host_table(hosts)))


def host_table(hosts: tuple[HostView, ...]) -> list[str]:
    """Return the lines of a table of hosts."""
    rows = [("host", "state", "cores", "gpus", "memory", "labels", "jobs", "message")]
    for host in hosts:
        used, total = host.used, host.total
        rows.append(
            (
                plain(host.name),
                host.state,
                f"{used.cpus:g} of {total.cpus:g}",
                f"{used.gpus:g} of {total.gpus:g}" if total.gpus else "-",
                f"{format_size(used.memory_bytes)} of {format_size(total.memory_bytes)}",
                plain(",".join(host.labels)) or "-",
                plain(", ".join(f"{job.id}:{job.workers}" for job in host.jobs)) or "-",
                plain(host.message or ""),
            )
        )
    return format_table(rows, left=("host", "state", "labels", "jobs", "message"))


@command.command("add")
@click.argument("names", type=HOST_NAME, nargs=-1, required=True, metavar="HOST...")
@click.option(
    "--label", "labels", type=LABEL, multiple=True, help="A label that jobs may ask for; may be repeated."
)
@click.option("--rack", type=RACK, help="The rack that it stands in.")
@url_option
@json_option
def add(
    names: tuple[str, ...], labels: tuple[str, ...], rack: str | None, url: str | None, as_json: bool
) -> None:
    """Let hosts run jobs: machines that you reach by ssh, or localhost."""
    body = {"labels": list(labels), "rack": rack or ""}
    with open_client(url) as client:
        made = [client.connection.send("POST", "/hosts", _view(), {"name": name, **body}) for name in names]
    _print(made, as_json)


@command.command("drain")
@click.argument("names", type=HOST_NAME, nargs=-1, required=True, metavar="HOST...")
@url_option
@json_option
def drain(names: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Place nothing new on hosts; what runs there goes on, elastic jobs move away."""
    _ask(names, "drain", url, as_json)


@command.command("undrain")
@click.argument("names", type=HOST_NAME, nargs=-1, required=True, metavar="HOST...")
@url_option
@json_option
def undrain(names: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Place jobs on hosts again."""
    _ask(names, "undrain", url, as_json)


def _ask(names: tuple[str, ...], action: str, url: str | None, as_json: bool) -> None:
    with open_client(url) as client:
        paths = [f"/hosts/{quote(name, safe='')}/{action}" for name in names]
        _print([client.connection.send("POST", path, _view()) for path in paths], as_json)


@command.command("label")
@click.argument("name", type=HOST_NAME, metavar="HOST")
@click.argument("labels", type=LABEL, nargs=-1, metavar="LABEL...")
@click.option("--rack", type=RACK, help="The rack that it stands in.")
@click.option("--clear", is_flag=True, help="Take all labels away.")
@url_option
@json_option
def label(
    name: str, labels: tuple[str, ...], rack: str | None, clear: bool, url: str | None, as_json: bool
) -> None:
    """Give HOST these labels in place of those it has."""
    if clear == bool(labels) and (clear or rack is None):
        raise UsageError(
            "weft hosts label must have labels or --clear, got neither or both; write weft hosts label a big"
        )
    changes: dict[str, Any] = {"labels": list(labels)} if labels or clear else {}
    changes |= {} if rack is None else {"rack": rack or ""}
    with open_client(url) as client:
        _print([client.connection.send("PATCH", f"/hosts/{quote(name, safe='')}", _view(), changes)], as_json)


@command.command("rm")
@click.argument("names", type=HOST_NAME, nargs=-1, required=True, metavar="HOST...")
@url_option
@json_option
def remove(names: tuple[str, ...], url: str | None, as_json: bool) -> None:
    """Forget hosts that run nothing."""
    with open_client(url) as client:
        for name in names:
            client.connection.send("DELETE", f"/hosts/{quote(name, safe='')}", type(None))
    print_removed(list(names), as_json, ", ".join(names))


def _view() -> type[HostView]:
    from weft.jobs.api.types.cluster import HostView

    return HostView


def _print(hosts: list[HostView], as_json: bool) -> None:
    if as_json:
        print_data(hosts)
        return
    click.echo("\n".join(host_table(tuple(hosts))))
