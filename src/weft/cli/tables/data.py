"""`weft data convert`: files of a table to the form that fits are fast from."""

from __future__ import annotations

import csv
import json
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import click

from weft.cli.paths import OutputFolder
from weft.cli.values import Size


@click.group("data")
def command() -> None:
    """Prepare tables for weft.learn."""


@command.command("convert")
@click.argument("sources", nargs=-1, required=True)
@click.argument("folder", type=OutputFolder())
@click.option("--target", metavar="COLUMN", help="The column to predict.")
@click.option("--columns", metavar="A,B,...", help='The columns to keep, instead of all; "a,b" with a comma.')
@click.option("--memory", type=Size(), default="4GB", show_default=True, help="The most memory to use.")
@click.option("--strict", is_flag=True, help="Fail where a row or a file must be left out.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as data.")
@click.pass_context
def convert(
    ctx: click.Context,
    sources: tuple[str, ...],
    folder: Path,
    target: str | None,
    columns: str | None,
    memory: int,
    strict: bool,
    as_json: bool,
) -> None:
    """Convert SOURCES to the mapped form in FOLDER.

    They are parquet, Arrow, CSV or svmlight files, folders, globs or places in S3 (s3://BUCKET/PREFIX).

    Rows that cannot be used are left out and told by file and line; the good ones are kept.
    """
    from weft.learn.tables.convert import convert as converted
    from weft.learn.tables.sizes import format_memory
    from weft.learn.tables.source import files_here

    names = next(csv.reader([columns])) if columns else None  # a name with a comma is in quotes
    with ExitStack() as stack:
        files = [file for source in sources for file in stack.enter_context(files_here(source))]
        _, report = converted(files, folder, target=target, memory=memory, columns=names)
    if as_json:
        click.echo(json.dumps(asdict(report), indent=2))
    else:
        click.echo(
            f"{report.rows:,} rows x {report.columns} columns in {folder} ({format_memory(report.bytes)})"
        )
        for line in report.lines():
            click.echo(f"left out: {line}", err=True)
    ctx.exit(1 if strict and not report.clean else 0)
