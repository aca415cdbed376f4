"""`weft kubernetes`: come back to a run on a cluster, end it, and see what a cluster has to allow."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from weft.cli.paths import ExistingFile
from weft.cli.values import Text


@click.group("kubernetes")
def command() -> None:
    """Follow and end runs on Kubernetes, and set a cluster up for them."""


def _json_option(function: Any) -> Any:
    return click.option("--json", "as_json", is_flag=True, help="Print it as data.")(function)


@command.command("attach")
@click.argument("run")
@_json_option
@click.pass_context
def attach_command(ctx: click.Context, /, run: str, as_json: bool) -> None:
    """Follow a run that was started with --detach to its end. RUN is its run directory, or `latest`."""
    from weft.launch.control.console import Console
    from weft.launch.control.outcome import render_failure
    from weft.launch.control.rundir import RunDir, find_run
    from weft.launch.engines.kubernetes.run import attach

    folder = find_run(run)
    console = Console(2, logs=folder, out=(sys.stderr if as_json else sys.stdout).buffer)
    try:
        outcome = attach(folder, console)
    finally:
        console.close()
    RunDir(folder).write_outcome(outcome)
    if as_json:
        click.echo(json.dumps(outcome.to_json(), indent=2))
    if not outcome.ok:
        click.echo(render_failure(outcome), err=True)
    ctx.exit(outcome.code)


@command.command("delete")
@click.argument("run")
def delete_command(run: str) -> None:
    """End a run, and take all its objects away. RUN is its run directory, or `latest`."""
    from weft.launch.control.rundir import find_run
    from weft.launch.engines.kubernetes.run import delete

    name = delete(find_run(run))
    click.echo(f"weft: deleted {name}", err=True)


_KIND = click.option("--as", "kind", type=click.Choice(["job", "jobset", "trainjob"]), default="job",
                     help="The kind of object that makes the pods.")  # fmt: skip
_WRAPPED = click.option("--app-wrapper", is_flag=True, help="With AppWrappers.")


@command.command("role")
@_KIND
@_WRAPPED
@_json_option
def role_command(kind: Any, app_wrapper: bool, as_json: bool) -> None:
    """Print the Role that someone needs to run things in a namespace."""
    from weft.launch.engines.kubernetes.permissions import role

    _print(role(kind, app_wrapper=app_wrapper), as_json)


@command.command("runtime")
@click.option("--name", type=Text("a name", "weft"), default="weft", help="Its name.")
@click.option("--image", type=Text("an image", "team/train:2"), default="weft:latest", help="Its image.")
@_json_option
def runtime_command(name: str, image: str, as_json: bool) -> None:
    """Print the ClusterTrainingRuntime that runs --as trainjob need once in a cluster."""
    from weft.launch.engines.kubernetes.objects.manifests import training_runtime

    _print(training_runtime(name, image=image), as_json)


@command.command("check")
@_KIND
@_WRAPPED
@click.option(
    "--namespace", type=Text("a namespace", "training"), metavar="NAME", help="Where runs are to be."
)
@click.option(
    "--context", type=Text("a context", "lab"), metavar="NAME", help="The context of the kubeconfig."
)
@click.option(
    "--kubernetes",
    "settings_file",
    type=ExistingFile("a YAML file"),
    metavar="FILE",
    help="Settings of the pods, which the cluster is to judge as well.",
)
@_json_option
@click.pass_context
def check_command(ctx: click.Context, /, settings_file: Path | None, as_json: bool, **options: Any) -> None:
    """Ask the cluster whether it would take a run, and whether we may do what one needs; exit code 2 says no."""
    check_cluster(ctx, as_json, settings_file, options)


def check_cluster(
    ctx: click.Context, as_json: bool, settings_file: Path | None, options: dict[str, Any]
) -> None:
    """Print what a run needs to be allowed, and whether it is; then whether the cluster would take its objects."""
    from weft.documents import fill_model, parse_document
    from weft.launch.engines.kubernetes.api import ClusterApi
    from weft.launch.engines.kubernetes.permissions import check_permissions
    from weft.launch.engines.kubernetes.trial import try_run
    from weft.launch.pod_settings import KubernetesConfig
    from weft.text import format_table

    given = parse_document(settings_file) if settings_file is not None else {}
    given |= {name: value for name, value in options.items() if value is not None}
    settings = fill_model(given, KubernetesConfig, settings_file or Path("--engine kubernetes"))
    with closing(ClusterApi(settings)) as api:
        rights = {one.text: one.allowed for one in check_permissions(api, settings)}
        api.on_warning = lambda text: click.echo(f"weft: the cluster warns: {text}", err=True)
        # What may not be made is told above.
        kinds = dict(try_run(api, settings)) if all(rights.values()) else {}
        place = f"{api.namespace} at {api.server}"
    found = rights | {f"a {kind} is taken": not why for kind, why in kinds.items()}
    if as_json:
        click.echo(
            json.dumps([{"permission": text, "allowed": may} for text, may in found.items()], indent=2)
        )
    else:
        rows = [("permission", "allowed"), *((text, "yes" if may else "NO") for text, may in found.items())]
        click.echo("\n".join(format_table(rows, left=("permission", "allowed"))))
    if missing := [text for text, may in rights.items() if not may]:
        wanted = f" --as {settings.kind}" * (settings.kind != "job") + " --app-wrapper" * settings.app_wrapper
        click.echo(
            f"weft: a run in the namespace {place} must be allowed all of these, got no {', '.join(missing)}; "
            f"have someone apply: weft kubernetes role{wanted}",
            err=True,
        )
    for why in filter(None, kinds.values()):
        click.echo(f"weft: {why}", err=True)
    ctx.exit(0 if all(found.values()) else 2)


def _print(item: dict[str, Any], as_json: bool) -> None:
    from weft.launch.engines.kubernetes.objects.yaml_text import one_to_yaml

    click.echo(json.dumps(item, indent=2) if as_json else one_to_yaml(item), nl=as_json)
