"""`weft vision deploy`: a trained model, served on this machine or by a jobs service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.jobs.options import json_option, open_client, print_data, url_option
from weft.cli.paths import ExistingFile
from weft.cli.values import PORT, Text
from weft.errors import ModelError, UsageError

if TYPE_CHECKING:
    from weft.jobs.api.types.data import DeploymentView

LOOK_S = 0.3  # between two looks at a deployment
LONGEST_S = 120.0  # that a deployment may take to start
NAME = Text("a name of a deployment", "flowers", like=r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?")


@click.command("deploy")
@click.argument("model", type=Text())
@click.option("--name", type=NAME, help="What it is served as; the model's own name.")
@click.option("--host", type=Text(), default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=PORT, default=8000, show_default=True, help="The port to listen on.")
@click.option("--device", type=click.Choice(["auto", "cpu", "cuda"]), default="auto", show_default=True)
@click.option(
    "--keys",
    "key_file",
    type=ExistingFile("a file of keys"),
    help="Ask for keys of this file; see `weft serve keys`.",
)
@url_option
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    model: str,
    name: str | None,
    host: str,
    port: int,
    device: str,
    key_file: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    """Serve MODEL: a folder of `weft vision train` here, until Ctrl-C, or with --url a NAME[@VERSION] of a service.

    Pictures go to /detect_upload or /classify_upload of its port, or their addresses to /detect_url. A custom model's
    folder is served by its own deploy.py.
    """
    if url is not None:
        _print(_deployed(url, model, name), as_json)
        return
    folder = Path(model)
    if not folder.is_dir():
        raise UsageError(
            f"MODEL must be a folder of weft vision train, got {model}; a model of a service needs --url"
        )
    if (folder / "custom.json").is_file():
        from weft.vision.custom.serving import serve_custom

        serve_custom(
            folder, host, port, lambda address: click.echo(f"{folder.name}: {address}/detect_upload")
        )
        return
    from weft.cli.models.serve import command as serve

    served = f"{name or _plain(folder)}={_graph(folder)}"
    options: dict[str, Any] = {"host": host, "port": port, "device": device, "no_grpc": True}
    ctx.invoke(serve, models=(served,), detect_url=True, key_file=key_file, **options)


def _plain(folder: Path) -> str:
    """Return a folder's name as the name of a served model."""
    kept = "".join(one if one.isalnum() or one in "-_" else "-" for one in folder.resolve().name)
    return kept.strip("-_") or "model"


def _graph(folder: Path) -> Path:
    """Return the ONNX file of a model folder, which is exported first if it is not there."""
    path = folder / "model.onnx"
    if path.is_file():
        return path
    from weft.vision.export.onnx import export_folder
    from weft.vision.inference.predictor import load_network, read_folder

    found = read_folder(folder)
    export_folder(load_network(found, "cpu")[0].model, found.config, found.classes, folder)
    return path


def _deployed(url: str, model: str, name: str | None) -> DeploymentView:
    """Deploy a model of a service and wait until it answers."""
    from weft.jobs.api.types.data import DeploymentView

    wanted = name or model.partition("@")[0].replace(".", "-")[:50]
    with open_client(url) as client:
        connection = client.connection
        body = {"name": wanted, "model": model}
        found = connection.send("POST", "/deployments", DeploymentView, body)
        until = time.monotonic() + LONGEST_S
        while found.state == "starting" and time.monotonic() < until:
            time.sleep(LOOK_S)
            found = connection.get(f"/deployments/{wanted}", DeploymentView)
    if found.state != "running":
        raise ModelError(
            f"{wanted} must run to be asked, got {found.state}: {found.message or 'see its log'}"
        )
    return found


def _print(found: DeploymentView, as_json: bool) -> None:
    if as_json:
        print_data(found)
        return
    click.echo(f"{found.name}: {found.model}@{found.version} is {found.state} at {found.url}")
    click.echo(f"curl -F files=@picture.jpg {found.url}/detect_upload")
