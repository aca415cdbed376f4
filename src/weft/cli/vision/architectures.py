"""`weft vision architectures`: the models that can be trained, and the names of IBM's that stand for them."""

from __future__ import annotations

import json

import click

from weft.text import format_table


@click.command("architectures")
@click.option("--json", "as_json", is_flag=True, help="Print the table as data.")
def command(as_json: bool) -> None:
    """List the models that can be trained; names of IBM's products are accepted, too."""
    from weft.vision.config.names import IBM_NAMES, MODELS

    rows = [
        {
            "name": one.name,
            "tasks": list(one.tasks),
            "pretrained": one.pretrained,
            "about": one.about,
            "ibm": [name for name, ours in IBM_NAMES.items() if ours == one.name],
        }
        for one in MODELS.values()
    ]
    if as_json:
        click.echo(json.dumps(rows))
        return
    table = [("name", "tasks", "about", "IBM's names")]
    table += [
        (one.name, ", ".join(one.tasks), one.about, ", ".join(row["ibm"]))  # type: ignore[arg-type]
        for one, row in zip(MODELS.values(), rows, strict=True)
    ]
    for line in format_table(table, left=table[0]):
        click.echo(line)
