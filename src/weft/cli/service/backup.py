"""`weft backup`: everything that a service keeps, in one file, made while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from weft.cli.jobs.options import DATABASE, json_option, missing_extra, print_data
from weft.cli.paths import OutputFile, PossibleFolder
from weft.errors import UsageError
from weft.text import format_size, plural

if TYPE_CHECKING:
    from weft.jobs.upkeep.backup import BackupReport

F = TypeVar("F", bound=Callable[..., Any])


def place_options(function: F) -> F:
    """Add --data and --database, as `weft up` has them."""
    database = click.option(
        "--database", type=DATABASE, metavar="URL", envvar="WEFT_DATABASE", help="As for weft up."
    )
    data = click.option(
        "--data", type=PossibleFolder(), metavar="DIR", help="The data folder, as for weft up."
    )
    return data(database(function))


def place_of(data: Path | None, database: str | None) -> tuple[str, Path]:
    """Return the address of a service's database, and its data folder."""
    try:
        from weft.jobs.client.address import default_data_folder
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    folder = (data or default_data_folder()).absolute()
    return database or f"sqlite:///{folder}/weft.db", folder


def print_report(verb: str, report: BackupReport, as_json: bool) -> None:
    """Tell what a backup holds."""
    if as_json:
        print_data({"path": str(report.path), "bytes": report.bytes, "rows": report.rows})
        return
    jobs = plural(report.rows.get("job", 0), "job")
    click.echo(f"{verb} {report.path}: {jobs}, {format_size(report.bytes)}")


@click.command("backup")
@click.argument("file", type=OutputFile(), metavar="FILE.tar.gz")
@click.option(
    "--with-key", is_flag=True, help="Add the key of the secrets: whoever has the file can read them."
)
@click.option("--with-files", is_flag=True, help="Add outputs, artifacts and checkpoints of jobs.")
@place_options
@json_option
def command(
    file: Path, with_key: bool, with_files: bool, data: Path | None, database: str | None, as_json: bool
) -> None:
    """Write a backup of the service's database and code to a new FILE; the service may run meanwhile."""
    address, folder = place_of(data, database)
    if not folder.is_dir():
        raise UsageError(
            f"a backup must be of a service's data folder, got {folder}, which is not there; name it with --data"
        )
    try:
        from weft.jobs.upkeep.backup import back_up
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    print_report("kept", back_up(address, folder, file, with_key=with_key, with_files=with_files), as_json)
