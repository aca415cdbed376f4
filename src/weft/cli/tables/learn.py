"""`weft learn fit`: a model of a table, with no code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from click.core import ParameterSource

from weft.cli.paths import ExistingFile
from weft.cli.training.options import launch_config, launch_options
from weft.cli.values import NameValue, Size
from weft.errors import UsageError
from weft.launch.command import Command


@click.group("learn")
def command() -> None:
    """Fit models to tables."""


@command.command("fit")
@click.argument("table")
@click.option("--target", metavar="COLUMN", help="The column to predict; svmlight files say it themselves.")
@click.option(
    "--model", default="linear", show_default=True, help="linear, lasso, svm, tree, forest or boosting."
)
@click.option(
    "--param",
    "params",
    type=NameValue("K=V", "C=0.1", empty=True),
    multiple=True,
    metavar="K=V",
    help="A parameter of the model; may be repeated.",
)
@click.option(
    "--memory", type=Size(), default="4GB", show_default=True, help="The most memory that rows may take."
)
@click.option("--test", metavar="TABLE", help="Rows to score the model on.")
@click.option(
    "--out", metavar="FILE", help="Keep the model there: as ONNX if it ends in .onnx, else pickled."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as data.")
@launch_options
@click.pass_context
def fit(ctx: click.Context, /, **options: Any) -> None:
    """Fit a model to TABLE: a parquet, Arrow, CSV or svmlight file, a folder, a glob, or what `weft data convert` made.

    A TABLE that ends in .yaml names the table and what to do with it, in the words of the options; options win.

    With -n or -H workers fit together, each on its share of the rows.
    """
    from weft.learn.fitting_job import FitConfig, as_argument, fit_job, settings_of

    as_json = options.pop("as_json")
    asked = {
        "source": options.pop("table"),
        "params": {name: _plain(value) for name, value in options.pop("params")},
    }
    for name in ("target", "model", "memory", "test", "out"):
        value = options.pop(name)
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            asked[name] = value
    if Path(asked["source"]).suffix in (".yaml", ".yml"):
        kept = settings_of(Path(asked.pop("source")))
        asked["params"] = {**kept.get("params", {}), **asked["params"]}
        asked = {**kept, **asked}
    config = FitConfig(**asked)
    launching = launch_config(Command("module", "weft.learn.fitting_job"), options)
    if not (options["workers"] or launching.hosts):
        _show(fit_job(config), as_json)
        return
    from weft.launch import run as launch
    from weft.launch.control.outcome import render_failure

    with TemporaryDirectory() as folder:
        # Rank 0 may be on another host: then it prints the report itself.
        told = Path(folder) / "report.json" if not launching.hosts else None
        config = replace(config, report=str(told) if told else None)
        job = replace(launching.command, args=(as_argument(config),))
        outcome = launch.run(replace(launching, command=job), to_stderr=as_json)
        report = json.loads(told.read_text()) if told is not None and told.exists() else {}
        if "refused" in report:
            raise UsageError(report["refused"])
        if outcome.ok and report:
            _show(report, as_json)
    if not outcome.ok:
        click.echo(render_failure(outcome), err=True)
    ctx.exit(outcome.code)


@command.command("explain")
@click.argument("model", type=ExistingFile())
@click.argument("table", required=False)
@click.option(
    "--target", metavar="COLUMN", help="The column of TABLE that was predicted: adds standard errors."
)
@click.option("--json", "as_json", is_flag=True, help="Print the table as data.")
def explain(model: Path, table: str | None, target: str | None, as_json: bool) -> None:
    """Tell what MODEL (of `weft learn fit --out`, pickled) goes by: coefficients, or importances and the tree.

    Open only models that you trust: a pickle can run any code.
    """
    from weft.learn.explaining import explained
    from weft.learn.saved import load_estimator
    from weft.learn.trees.picture import export_text

    if target is not None and table is None:
        raise UsageError(
            "--target must come with a TABLE that has the column, got none; add a table or drop it"
        )
    fitted = load_estimator(model)
    try:
        found = explained(fitted, table, target)
    except UsageError:
        raise
    except (ValueError, TypeError, AttributeError) as error:  # not fitted, or rows that are not the model's
        raise UsageError(f"{model} cannot be explained: {str(error).splitlines()[0]}") from error
    if as_json:
        # JSON has no word for what is not known.
        told = [{name: _known(value) for name, value in one._asdict().items()} for one in found]
        click.echo(json.dumps(told))
        return
    if hasattr(found[0], "share"):
        wide = max(len(one.name) for one in found)
        click.echo("\n".join(f"{one.name:{wide}}{one[1]:12.5f}" for one in found))
        if hasattr(fitted, "tree_"):
            names = list(getattr(fitted, "feature_names_in_", [])) or None
            click.echo(export_text(fitted, feature_names=names, max_depth=4), nl=False)
    else:
        click.echo(str(found))


@command.command("compile")
@click.option(
    "--ahead", is_flag=True, help="For machines like this one, into the package: for wheels and images."
)
def compile_kernels(ahead: bool) -> None:
    """Compile what first fits need: into this user's cache, for this very processor."""
    from weft.learn import compiled_ahead

    if ahead:
        for path in compiled_ahead.compile_ahead():
            click.echo(path)
        return
    count, seconds = compiled_ahead.compile_kernels()
    click.echo(f"{count} kernels were compiled in {seconds:.0f} s; fits start warm")


def _known(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and value != value else value


def _show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report))
        return
    for name, value in report.items():
        click.echo(f"{name.replace('_', ' '):12} {value}")


def _plain(value: str) -> Any:
    """Return the number, list or word that the value of a parameter stands for."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return {"None": None, "True": True, "False": False}.get(value, value)
