"""`weft vision data files|copy|move`: files of a data set that a query chooses."""

from __future__ import annotations

from pathlib import Path

import click

from weft.cli.jobs.options import print_data
from weft.cli.jobs.printing import plain
from weft.cli.values import Text, Whole
from weft.cli.vision.options import NAME, place_options
from weft.cli.vision.places import open_place
from weft.text import format_table, plural

QUERY = Text("a query", "width >= 640 and not label", like=r"[^\x00]{1,2000}")
SORT = Text("an order", "-updated", like=r"-?[a-z_]{1,40}")


@click.command("files")
@click.argument("name", type=NAME)
@click.option("--query", type=QUERY, metavar="QUERY", help="Only these: 'width >= 640 and not label'.")
@click.option(
    "--sort",
    type=SORT,
    default="added",
    show_default=True,
    help="added, name, confidence, updated, or -name.",
)
@click.option("--limit", type=Whole(1, 1000), default=50, show_default=True, help="The most files to print.")
@place_options
def files(
    name: str, query: str | None, sort: str, limit: int, library: Path | None, url: str | None, as_json: bool
) -> None:
    """Print the files of a data set that a query lets through.

    Queries compare name, width, label, category, state, split, confidence, metadata and more; see the docs.
    """
    with open_place(library, url) as place:
        page = place.files(name, query or "", sort, limit)
    if as_json:
        print_data(page)
        return
    rows = [("file", "kind", "size", "state", "split", "labels")]
    for one in page.files:
        labels = ", ".join(f"{label} {count}" for label, count in one.labels.items())
        size = f"{one.width} x {one.height}"
        rows.append((plain(one.name), one.kind, size, one.state, one.split, plain(one.category or labels)))
    click.echo("\n".join(format_table(rows, left=("file", "kind", "state", "split", "labels"))))
    if page.total > len(page.files):
        click.echo(f"{page.total - len(page.files)} more; --limit shows them", err=True)


def _carry(
    action: str,
    name: str,
    target: str,
    query: str | None,
    library: Path | None,
    url: str | None,
    as_json: bool,
) -> None:
    with open_place(library, url) as place:
        changed = place.carry(action, name, target, query or "")
    done = "copied" if action == "copy" else "moved"
    print_data({"changed": changed}) if as_json else click.echo(
        f"{plural(changed, 'file')} {done} to {plain(target)}"
    )


@click.command("copy")
@click.argument("name", type=NAME)
@click.argument("target", type=NAME)
@click.option("--query", type=QUERY, metavar="QUERY", help="Only these; without it, all.")
@place_options
def copy(
    name: str, target: str, query: str | None, library: Path | None, url: str | None, as_json: bool
) -> None:
    """Copy files with their labels from NAME to TARGET, which is there already; pictures are kept once."""
    _carry("copy", name, target, query, library, url, as_json)


@click.command("move")
@click.argument("name", type=NAME)
@click.argument("target", type=NAME)
@click.option("--query", type=QUERY, metavar="QUERY", help="Only these; without it, all.")
@place_options
def move(
    name: str, target: str, query: str | None, library: Path | None, url: str | None, as_json: bool
) -> None:
    """Move files with their labels from NAME to TARGET, which is there already."""
    _carry("move", name, target, query, library, url, as_json)
