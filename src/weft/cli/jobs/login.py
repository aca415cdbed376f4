"""`weft login`: keep a token for a service of another machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import USER_NAME, json_option, missing_extra, print_data
from weft.cli.paths import ExistingFile
from weft.cli.values import Url, Whole
from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.jobs.client.address import ServiceAddress

LINK = "/login#link="  # the end of the address of a link that logs in, and the start of its secret


@click.command("login")
@click.argument("url", type=Url(), metavar="URL|LINK")
@click.option("--user", type=USER_NAME, help="Your name there; asked for by default.")
@click.option("--token-stdin", is_flag=True, help="Read a token from standard input in place of a password.")
@click.option(
    "--days", type=Whole(1, 3650, example=90), default=90, show_default=True, help="Until you log in again."
)
@click.option("--ca", type=ExistingFile(), help="Certificates to trust, PEM.")
@click.option("--insecure", is_flag=True, help="Send it over plain http to another machine.")
@click.option("--forget", is_flag=True, help="Forget the login in place of making one.")
@json_option
def command(
    url: str,
    user: str | None,
    token_stdin: bool,
    days: int,
    ca: Path | None,
    insecure: bool,
    forget: bool,
    as_json: bool,
) -> None:
    """Log in to the service at URL, by name and password, by a link, or by a token; then it is the default.

    The token that is made is kept in credentials.json in your folder for settings, readable by you alone.
    """
    try:
        from weft.jobs.client.address import (
            KeptLogin,
            ServiceAddress,
            credentials_path,
            keep_login,
            plain_url,
        )
        from weft.jobs.client.login import check_token, log_in
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    base, _, link = url.partition(LINK)
    address = ServiceAddress(plain_url(base), None, ca.absolute() if ca is not None else None)
    if forget:
        keep_login(credentials_path(), address.url, None)
        click.echo(f"weft: the login for {address.url} is forgotten", err=True)
        return
    _check_encrypted(address, insecure)
    if token_stdin:
        name, token = check_token(address, sys.stdin.readline().strip())
    elif link:
        name, token = log_in(address, days=days, link=link)
    else:
        name, password = _asked(user)
        name, token = log_in(address, days=days, name=name, password=password)
    keep_login(
        credentials_path(), address.url, KeptLogin(token, name, str(address.ca) if address.ca else None)
    )
    if as_json:
        print_data({"url": address.url, "user": name})
    else:
        click.echo(f"logged in to {address.url} as {name}")


def _check_encrypted(address: ServiceAddress, insecure: bool) -> None:
    if address.url.startswith("http://") and not address.is_loopback and not insecure:
        raise UsageError(
            f"a login must not travel in the clear, got {address.url}; use https, or write --insecure on a network "
            "that only machines you trust are on"
        )


def _asked(user: str | None) -> tuple[str, str]:
    if not sys.stdin.isatty():
        raise UsageError("a password must be typed, got no terminal; write --token-stdin and pipe a token in")
    import getpass

    name = user or click.prompt("name", default=getpass.getuser(), err=True)
    return name, click.prompt("password", hide_input=True, err=True)
