"""`weft audit`: who did what in the jobs service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import USER_NAME, json_option, open_client, print_data, url_option
from weft.cli.jobs.printing import moment, plain
from weft.cli.values import Text, Whole
from weft.text import format_table

if TYPE_CHECKING:
    from weft.jobs.api.types.accounts import AuditEntry

_PAGE = 500  # entries that are asked for at once


@click.command("audit")
@click.option("--user", type=USER_NAME, metavar="NAME", help="Only what this user did.")
@click.option(
    "--action", type=Text("a word of the audit", "stop"), metavar="WORD", help="Only this: stop, add user."
)
@click.option(
    "-n", "--limit", type=Whole(1, 100_000, example=50), default=50, show_default=True, help="Most rows."
)
@url_option
@json_option
def command(user: str | None, action: str | None, limit: int, url: str | None, as_json: bool) -> None:
    """Print who did what and when, newest first; administrators may ask."""
    from weft.jobs.api.types.accounts import AuditAnswer

    found: list[AuditEntry] = []
    with open_client(url) as client:
        cursor: str | None = None
        while len(found) < limit:
            query = {
                "user": user,
                "action": action,
                "limit": str(min(_PAGE, limit - len(found))),
                "cursor": cursor,
            }
            given = {name: value for name, value in query.items() if value is not None}
            page = client.connection.get("/audit", AuditAnswer, given)
            found += page.entries
            cursor = page.next
            if cursor is None:
                break
    if as_json:
        print_data(found)
        return
    rows = [("when", "user", "did", "to", "with")]
    rows += [
        (
            moment(one.time_ms),
            plain(one.user),
            plain(one.action),
            plain(one.target),
            plain(json.dumps(one.detail)) if one.detail else "",
        )
        for one in found
    ]
    click.echo("\n".join(format_table(rows, left=rows[0])))
