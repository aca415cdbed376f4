"""`weft deployment`: models that the service serves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import (
    confirm,
    json_option,
    open_client,
    print_data,
    print_removed,
    url_option,
    yes_option,
)
from weft.cli.jobs.printing import moment, plain
from weft.cli.values import Real, Text, Whole
from weft.errors import UsageError
from weft.text import format_table

if TYPE_CHECKING:
    from weft.jobs.api.types.data import DeploymentDetail, DeploymentView

NAME = Text(
    "a name of letters, digits, dashes and underscores", "live", like=r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}"
)
MODEL = Text(
    "a model, a version of it or an alias",
    "digits@3",
    like=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(@[A-Za-z0-9._-]{1,100})?",
)


@click.group("deployment")
def command() -> None:
    """Serve models of the service's store, each under a name, and turn to other versions without a gap."""


@command.command("list")
@url_option
@json_option
def list_deployments(url: str | None, as_json: bool) -> None:
    """Print all deployments."""
    from weft.jobs.api.types.data import DeploymentsAnswer

    with open_client(url) as client:
        found = client.connection.get("/deployments", DeploymentsAnswer).deployments
    if not as_json and not found:
        click.echo("no deployments; serve a model with weft deployment deploy live digits@1")
    else:
        _print(found, as_json)


@command.command("show")
@click.argument("name", type=NAME)
@url_option
@json_option
def show(name: str, url: str | None, as_json: bool) -> None:
    """Print a deployment with its load, latency, inputs and outputs."""
    from weft.jobs.api.types.data import DeploymentDetail

    with open_client(url) as client:
        found = client.connection.get(f"/deployments/{name}", DeploymentDetail)
    print_data(found) if as_json else _print_detail(found)


@command.command("deploy")
@click.argument("name", type=NAME)
@click.argument("model", type=MODEL)
@url_option
@json_option
def deploy(name: str, model: str, url: str | None, as_json: bool) -> None:
    """Serve MODEL as NAME; a name that is there turns to that version without losing a request."""
    from weft.jobs.api.types.data import DeploymentView

    with open_client(url) as client:
        body = {"name": name, "model": model}
        _print((client.connection.send("POST", "/deployments", DeploymentView, body),), as_json)


@command.command("rollback")
@click.argument("name", type=NAME)
@url_option
@json_option
def roll_back(name: str, url: str | None, as_json: bool) -> None:
    """Serve the version that NAME served before."""
    _post(name, "rollback", url, as_json)


@command.command("canary")
@click.argument("name", type=NAME)
@click.argument("version", type=Whole(1, 999_999_999, example=5), required=False)
@click.option(
    "--percent",
    type=Real(0, 100, example=10),
    default=10.0,
    show_default=True,
    help="Of the requests, that it answers.",
)
@click.option("--none", "none", is_flag=True, help="End the canary.")
@url_option
@json_option
def canary(
    name: str, version: int | None, percent: float, none: bool, url: str | None, as_json: bool
) -> None:
    """Let another VERSION answer a share of the requests to NAME."""
    from weft.jobs.api.types.data import DeploymentView

    if (version is None) != none:
        raise UsageError("a version or --none must be given, got both or neither; name one of them")
    with open_client(url) as client:
        body = {"version": version, "percent": percent}
        _print(
            (client.connection.send("POST", f"/deployments/{name}/canary", DeploymentView, body),), as_json
        )


@command.command("undeploy")
@click.argument("name", type=NAME)
@url_option
@json_option
def undeploy(name: str, url: str | None, as_json: bool) -> None:
    """End the server of NAME; `deploy` starts it again."""
    _post(name, "stop", url, as_json)


@command.command("rm")
@click.argument("name", type=NAME)
@yes_option
@url_option
@json_option
def remove(name: str, yes: bool, url: str | None, as_json: bool) -> None:
    """End the server of NAME and forget it; the model stays in the store."""
    confirm(f"remove the deployment {name}?", yes)
    with open_client(url) as client:
        client.connection.send("DELETE", f"/deployments/{name}", type(None))
    print_removed(name, as_json)


def _post(name: str, action: str, url: str | None, as_json: bool) -> None:
    from weft.jobs.api.types.data import DeploymentView

    with open_client(url) as client:
        _print((client.connection.send("POST", f"/deployments/{name}/{action}", DeploymentView),), as_json)


def _print(deployments: tuple[DeploymentView, ...], as_json: bool) -> None:
    if as_json:
        print_data(deployments)
        return
    rows: list[tuple[str, ...]] = [("deployment", "model", "state", "address", "by", "changed", "about")]
    for one in deployments:
        model, address = f"{plain(one.model)}@{one.version}", one.url or "-"
        about = plain(one.message or "")
        rows.append(
            (plain(one.name), model, one.state, address, plain(one.user), moment(one.changed_ms), about)
        )
    click.echo("\n".join(format_table(rows, left=rows[0])))


def _print_detail(one: DeploymentDetail) -> None:
    before = ", ".join(map(str, one.previous)) or "-"
    rows = [
        ("deployment", plain(one.name)),
        ("model", f"{plain(one.model)}@{one.version}"),
        ("versions before", before),
        ("state", one.state + (f": {plain(one.message)}" if one.message else "")),
        ("address", one.url or "-"),
    ]
    if (figures := one.figures) is not None:
        quantiles = (figures.p50_ms, figures.p95_ms, figures.p99_ms)
        shown = ", ".join("-" if value is None else f"{value:.1f}" for value in quantiles)
        rows.append(
            ("requests", f"{figures.requests}, {figures.failures} failed, {figures.in_flight} in flight")
        )
        rows.append(("latency in ms", f"{shown} (p50, p95, p99)"))
    for kind, tensors in (("input", one.inputs), ("output", one.outputs)):
        for tensor in tensors:
            name, datatype = plain(str(tensor.get("name"))), plain(str(tensor.get("datatype")))
            rows.append((kind, f"{name} {datatype} {tensor.get('shape')}"))
    click.echo("\n".join(f"{name:15}  {text}" for name, text in rows))
