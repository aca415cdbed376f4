"""`weft restore`: a service's data from a backup, into a new data folder."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.jobs.options import json_option, missing_extra
from weft.cli.paths import ExistingFile
from weft.cli.service.backup import place_of, place_options, print_report


@click.command("restore")
@click.argument("file", type=ExistingFile("a backup"), metavar="FILE.tar.gz")
@place_options
@json_option
def command(file: Path, data: Path | None, database: str | None, as_json: bool) -> None:
    """Put the backup FILE into a data folder and a database that hold nothing yet; no service may run there."""
    address, folder = place_of(data, database)
    try:
        from weft.jobs.api.process import locked_data
        from weft.jobs.upkeep.backup import restore
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    there = folder.exists()
    folder.mkdir(0o700, parents=True, exist_ok=True)
    try:
        with locked_data(folder):
            report = restore(file, address, folder)
    except BaseException:
        if not there:
            _remove_made(folder)
        raise
    print_report("restored", report, as_json)


def _remove_made(folder: Path) -> None:
    """Remove a folder that was made for nothing, if nothing but its lock is in it."""
    (folder / ".lock").unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
