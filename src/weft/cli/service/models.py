"""`weft models`: the models that jobs left in the service's store, and where each came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import (
    ALIAS,
    JOB,
    confirm,
    json_option,
    open_client,
    print_data,
    print_removed,
    url_option,
    yes_option,
)
from weft.cli.jobs.printing import plain
from weft.cli.values import Text
from weft.text import format_size, format_table

if TYPE_CHECKING:
    from weft.jobs.api.types.data import ModelVersionDetail, ModelView

_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
MODEL = Text("the name of a model", "digits", like=_WORD)
REFERENCE = Text("a model, or one version of it", "digits@3", like=_WORD + r"(@[0-9]{1,9})?")
VERSION = Text("one version of a model", "digits@3", like=_WORD + r"@[0-9]{1,9}")
PATH = Text("the path of a file among a job's outputs", "model.onnx", like=r"[^\x00-\x1f]{1,1024}")


@click.group("models")
def command() -> None:
    """List and tag the models of the jobs service; `weft model` is for a store of your own."""


@command.command("list")
@url_option
@json_option
def list_models(url: str | None, as_json: bool) -> None:
    """Print all models with their newest versions."""
    from weft.jobs.api.types.data import ModelsAnswer

    with open_client(url) as client:
        found = client.connection.get("/models", ModelsAnswer).models
    if as_json:
        print_data(found)
    elif not found:
        click.echo("no models; a job with export: {model: NAME} leaves one, or weft models add")
    else:
        _print_models(found, all_versions=False)


@command.command("show")
@click.argument("reference", type=REFERENCE)
@url_option
@json_option
def show(reference: str, url: str | None, as_json: bool) -> None:
    """Print the versions of a model, or where one version came from: job, code, data, parameters, metrics."""
    from weft.jobs.api.types.data import ModelVersionDetail, ModelView

    name, _, version = reference.partition("@")
    with open_client(url) as client:
        if version:
            detail = client.connection.get(f"/models/{name}/versions/{version}", ModelVersionDetail)
            print_data(detail) if as_json else _print_version(detail)
            return
        model = client.connection.get(f"/models/{name}", ModelView)
    print_data(model) if as_json else _print_models((model,), all_versions=True)


@command.command("add")
@click.argument("job", type=JOB)
@click.argument("model", type=MODEL)
@click.option(
    "--path", type=PATH, default="model.onnx", show_default=True, help="Of the file in its outputs."
)
@click.option("--alias", type=ALIAS, help="A name that means this version from now on.")
@url_option
@json_option
def add(job: int, model: str, path: str, alias: str | None, url: str | None, as_json: bool) -> None:
    """Put an ONNX file of JOB into the store, as the next version of MODEL."""
    from weft.jobs.api.types.data import ModelView

    body = {"job": job, "model": model, "path": path, "alias": alias}
    with open_client(url) as client:
        made = client.connection.send("POST", "/models", ModelView, body)
    print_data(made) if as_json else click.echo(f"{made.name}@{made.versions[0].version}")


@command.command("tag")
@click.argument("version", type=VERSION)
@click.argument("alias", type=ALIAS)
@url_option
@json_option
def tag(version: str, alias: str, url: str | None, as_json: bool) -> None:
    """Let ALIAS mean VERSION."""
    from weft.jobs.api.types.data import ModelView

    name, _, number = version.partition("@")
    with open_client(url) as client:
        body = {"alias": alias, "version": int(number)}
        changed = client.connection.send("POST", f"/models/{name}/aliases", ModelView, body)
    print_data(changed) if as_json else click.echo(f"{name}@{alias} is {version}")


@command.command("untag")
@click.argument("model", type=MODEL)
@click.argument("alias", type=ALIAS)
@url_option
@json_option
def untag(model: str, alias: str, url: str | None, as_json: bool) -> None:
    """Forget ALIAS of MODEL."""
    with open_client(url) as client:
        client.connection.send("DELETE", f"/models/{model}/aliases/{alias}", type(None))
    print_removed(f"{model}@{alias}", as_json)


@command.command("rm")
@click.argument("version", type=VERSION)
@yes_option
@url_option
@json_option
def remove(version: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Remove a version that has no alias."""
    confirm(f"remove {version}?", yes)
    name, _, number = version.partition("@")
    with open_client(url) as client:
        client.connection.send("DELETE", f"/models/{name}/versions/{number}", type(None))
    print_removed(version, as_json)


def _print_models(models: tuple[ModelView, ...], *, all_versions: bool) -> None:
    rows: list[tuple[str, ...]] = [("model", "version", "aliases", "size", "job", "deployed as", "made")]
    for model in models:
        for one in model.versions if all_versions else model.versions[:1]:
            job, deployed = str(one.job or "-"), ", ".join(one.deployments) or "-"
            aliases = ", ".join(one.aliases) or "-"
            rows.append(
                (
                    plain(model.name),
                    str(one.version),
                    aliases,
                    format_size(one.bytes),
                    job,
                    deployed,
                    one.created[:16],
                )
            )
    click.echo("\n".join(format_table(rows, left=("model", "aliases", "deployed as", "made"))))


def _print_version(one: ModelVersionDetail) -> None:
    rows = [("model", f"{one.name}@{one.version}"), ("sha256", one.sha256), ("size", format_size(one.bytes))]
    rows.append(("aliases", ", ".join(one.aliases) or "-"))
    origin = one.lineage
    if origin is not None:
        rows.append(("job", f"{origin.job or 'removed'} ({plain(origin.job_name)}, {plain(origin.user)})"))
        rows.append(("code", origin.git_commit or origin.code or "-"))
        rows += [("data", f"{plain(data.source)} ({data.digest[:12]})") for data in origin.data]
        rows += [("parameter", f"{plain(name)} = {plain(value)}") for name, value in origin.params.items()]
        rows += [("metric", f"{plain(name)} = {value}") for name, value in origin.metrics.items()]
    click.echo("\n".join(f"{name:10}  {text}" for name, text in rows))
