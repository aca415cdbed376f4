"""`weft dataset`: data by name and version, as jobs read it: `data: {digits: dataset:digits@3}`."""

from __future__ import annotations

from pathlib import Path
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
from weft.cli.values import Text
from weft.text import format_size, format_table, plural

if TYPE_CHECKING:
    from weft.jobs.api.types.data import DatasetView

NAME = Text(
    "a name of letters, digits, dots, dashes and underscores",
    "digits",
    like=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}",
)
REFERENCE = Text(
    "a data set, or one version of it", "digits@3", like=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(@[0-9]{1,9})?"
)
SOURCE = Text("a path, or s3://BUCKET/PREFIX", "/data/digits", like=r"[^\x00-\x1f]{1,4096}")
NOTE = Text("a line of text", "with labels of May", like=r"[^\x00]{1,10000}")

LONGEST_READING_S = 12 * 3600.0  # the service reads every byte: 20 TB at 500 MB/s


@click.group("dataset")
def command() -> None:
    """Register data by name; jobs read `dataset:NAME@VERSION` and record what they read."""


@command.command("add")
@click.argument("name", type=NAME)
@click.argument("source", type=SOURCE)
@click.option("--note", type=NOTE, help="What is new in this version.")
@click.option("--description", type=NOTE, help="What the data set is.")
@url_option
@json_option
def add(
    name: str, source: str, note: str | None, description: str | None, url: str | None, as_json: bool
) -> None:
    """Register what is at SOURCE as the next version of NAME.

    SOURCE is a file or folder on the service's machine, or s3://BUCKET/PREFIX. The data stays there; the digest of
    every file is kept, and a job that reads a version which has changed is refused.
    """
    place = source if source.startswith("s3://") else str(Path(source).absolute())
    body = {"name": name, "source": place, "note": note or "", "description": description}
    with open_client(url) as client:
        made = client.connection.send("POST", "/datasets", _view(), body, timeout_s=LONGEST_READING_S)
    if as_json:
        print_data(made)
        return
    newest = made.versions[0]
    size = f"{plural(newest.files, 'file')}, {format_size(newest.bytes)}"
    click.echo(f"{made.name}@{newest.version}: {size}, digest {newest.digest[:12]}")


@command.command("list")
@url_option
@json_option
def list_datasets(url: str | None, as_json: bool) -> None:
    """Print all data sets with their newest versions."""
    from weft.jobs.api.types.data import DatasetsAnswer

    with open_client(url) as client:
        found = client.connection.get("/datasets", DatasetsAnswer).datasets
    if as_json:
        print_data(found)
        return
    if not found:
        click.echo("no data sets; register one with weft dataset add NAME FOLDER")
        return
    rows = [("data set", "version", "files", "size", "added", "by", "source")]
    for one in found:
        for newest in one.versions[:1]:
            rows.append(
                (plain(one.name), str(newest.version), str(newest.files), format_size(newest.bytes),
                 moment(newest.created_ms), plain(newest.user), plain(newest.source))
            )  # fmt: skip
    click.echo("\n".join(format_table(rows, left=("data set", "added", "by", "source"))))


@command.command("show")
@click.argument("reference", type=REFERENCE, metavar="NAME[@VERSION]")
@url_option
@json_option
def show(reference: str, url: str | None, as_json: bool) -> None:
    """Print the versions of a data set, or one version: its files, and the jobs and models that came of it."""
    from weft.jobs.api.types.data import DatasetVersionDetail

    name, _, version = reference.partition("@")
    with open_client(url) as client:
        if not version:
            found = client.connection.get(f"/datasets/{name}", _view())
            print_data(found) if as_json else click.echo("\n".join(_versions(found)))
            return
        detail = client.connection.get(f"/datasets/{name}/versions/{int(version)}", DatasetVersionDetail)
    if as_json:
        print_data(detail)
        return
    facts = [
        ("data set", f"{plain(detail.name)}@{detail.version}"),
        ("source", plain(detail.source)),
        ("digest", detail.digest),
        ("size", f"{plural(detail.files, 'file')}, {format_size(detail.bytes)}"),
        ("added", f"{moment(detail.created_ms)} by {plain(detail.user)}"),
        ("note", plain(detail.note)),
        ("jobs", ", ".join(map(str, detail.jobs))),
        ("models", plain(", ".join(detail.models))),
    ]
    click.echo("\n".join(format_table([fact for fact in facts if fact[1]], left=("data set",))))
    for file in detail.listing[:20]:
        click.echo(f"  {plain(file.path)}  {format_size(file.size)}")
    if detail.files > 20:
        click.echo(f"  and {detail.files - 20} more; --json has the first 1000")


def _versions(found: DatasetView) -> list[str]:
    rows = [("version", "files", "size", "digest", "added", "by", "note", "source")]
    for one in found.versions:
        rows.append(
            (str(one.version), str(one.files), format_size(one.bytes), one.digest[:12], moment(one.created_ms),
             plain(one.user), plain(one.note), plain(one.source))
        )  # fmt: skip
    head = [f"{plain(found.name)}: {plain(found.description)}"] if found.description else []
    return [*head, *format_table(rows, left=("digest", "added", "by", "note", "source"))]


@command.command("rm")
@click.argument("reference", type=REFERENCE, metavar="NAME[@VERSION]")
@yes_option
@url_option
@json_option
def remove(reference: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Forget a version, or a data set with all its versions; the data itself stays where it is."""
    name, _, version = reference.partition("@")
    confirm(f"Forget {reference}?", yes)
    path = f"/datasets/{name}" + (f"/versions/{int(version)}" if version else "")
    with open_client(url) as client:
        client.connection.send("DELETE", path, type(None))
    print_removed(reference, as_json)


def _view() -> type[DatasetView]:
    from weft.jobs.api.types.data import DatasetView

    return DatasetView
