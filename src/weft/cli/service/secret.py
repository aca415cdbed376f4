"""`weft secret`: values that jobs get as variables, and nobody gets to see."""

from __future__ import annotations

import sys

import click

from weft.cli.jobs.options import (
    VARIABLE_NAME,
    json_option,
    open_client,
    print_data,
    print_removed,
    url_option,
)
from weft.cli.jobs.printing import moment, plain
from weft.errors import UsageError
from weft.text import format_table

MOST_CHARACTERS = 64_000


@click.group("secret")
def command() -> None:
    """Keep secrets for your jobs: `secrets: [NAME]` in job.yaml, or weft submit --secret NAME."""


@command.command("list")
@url_option
@json_option
def list_secrets(url: str | None, as_json: bool) -> None:
    """Print the names of your secrets; values are never shown."""
    from weft.jobs.api.types.accounts import SecretsAnswer

    with open_client(url) as client:
        found = client.connection.get("/secrets", SecretsAnswer).secrets
    if as_json:
        print_data(found)
        return
    rows = [("secret", "set"), *((plain(one.name), moment(one.created_ms)) for one in found)]
    click.echo("\n".join(format_table(rows, left=rows[0])))


@command.command("set")
@click.argument("name", type=VARIABLE_NAME)
@url_option
@json_option
def set_secret(name: str, url: str | None, as_json: bool) -> None:
    """Keep a value as NAME: typed unseen, or read from standard input; never on the command line."""
    from weft.jobs.api.types.accounts import SecretView

    value = click.prompt(name, hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read()
    value = value.removesuffix("\n")
    if not 0 < len(value) <= MOST_CHARACTERS or "\0" in value:
        raise UsageError(
            f"a secret must be 1 to {MOST_CHARACTERS} characters of text, got {len(value)}; pipe it in, or type it"
        )
    with open_client(url) as client:
        made = client.connection.send("POST", "/secrets", SecretView, {"name": name, "value": value})
    print_data(made) if as_json else click.echo(
        f"kept {made.name}; write --secret {made.name} with weft submit"
    )


@command.command("rm")
@click.argument("name", type=VARIABLE_NAME)
@url_option
@json_option
def remove(name: str, url: str | None, as_json: bool) -> None:
    """Forget a secret; jobs that start later do not get it."""
    with open_client(url) as client:
        client.connection.send("DELETE", f"/secrets/{name}", type(None))
    print_removed(name, as_json)
