"""`weft token`: tokens by which programs act in your name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import LARGEST_ID, json_option, open_client, print_data, print_removed, url_option
from weft.cli.jobs.printing import moment, plain
from weft.cli.values import Text, Whole, Words
from weft.text import format_table

if TYPE_CHECKING:
    from weft.jobs.api.types.accounts import TokenView


@click.group("token")
def command() -> None:
    """Manage the tokens by which programs act in your name."""


@command.command("list")
@url_option
@json_option
def list_tokens(url: str | None, as_json: bool) -> None:
    """Print your tokens: what they may do, and when they were last used."""
    from weft.jobs.api.types.accounts import TokensAnswer

    with open_client(url) as client:
        _print(client.connection.get("/tokens", TokensAnswer).tokens, as_json)


@command.command("add")
@click.argument("name", type=Text("a name of at most 100 characters", "ci", like=r"[^\x00-\x1f]{1,100}"))
@click.option("--scope", type=Words(("read", "write", "admin")), default=("read", "write"), metavar="SCOPE,...",
              help="What it may do: read, write, admin (read,write).")  # fmt: skip
@click.option(
    "--days", type=Whole(1, 3650, example=90), default=90, show_default=True, help="Until it expires."
)
@click.option("--forever", is_flag=True, help="It does not expire.")
@url_option
@json_option
def add(name: str, scope: tuple[str, ...], days: int, forever: bool, url: str | None, as_json: bool) -> None:
    """Make a token and print it: it is not kept anywhere else."""
    from weft.jobs.api.types.accounts import NewTokenAnswer

    body = {"name": name, "scopes": list(scope), "days": None if forever else days}
    with open_client(url) as client:
        made = client.connection.send("POST", "/tokens", NewTokenAnswer, body)
    if as_json:
        print_data(made)
        return
    end = moment(made.token.expires_ms) if made.token.expires_ms else "it is removed"
    click.echo(
        f"weft: token {made.token.id} ({', '.join(scope)}) until {end}; the token itself, shown once:",
        err=True,
    )
    click.echo(made.text)


@command.command("rm")
@click.argument("token", type=Whole(1, LARGEST_ID))
@url_option
@json_option
def remove(token: int, url: str | None, as_json: bool) -> None:
    """Revoke a token, by its number."""
    with open_client(url) as client:
        client.connection.send("DELETE", f"/tokens/{token}", type(None))
    print_removed(token, as_json, f"token {token}")


def _print(tokens: tuple[TokenView, ...], as_json: bool) -> None:
    if as_json:
        print_data(tokens)
        return
    rows: list[tuple[str, ...]] = [("token", "name", "scopes", "made", "used", "expires")]
    for one in tokens:
        times = (moment(ms) for ms in (one.created_ms, one.used_ms, one.expires_ms))
        rows.append((str(one.id), plain(one.name), ",".join(one.scopes), *times))
    click.echo("\n".join(format_table(rows, left=rows[0][1:])))
