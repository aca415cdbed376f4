"""`weft user`: who may use the service."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import (
    USER_NAME,
    confirm,
    json_option,
    open_client,
    print_data,
    print_removed,
    url_option,
    yes_option,
)
from weft.cli.jobs.printing import moment, plain
from weft.cli.values import Real, Size, Text
from weft.errors import UsageError
from weft.text import format_size, format_table, plural, suggestion

if TYPE_CHECKING:
    from weft.jobs.api.types.accounts import LinkAnswer, UserQuota, UserView
    from weft.jobs.client.client import JobsClient

ROLES = ("viewer", "member", "admin")
SYSTEM_USER = Text("an account of the service's machine", "bob", like=r"[A-Za-z_][A-Za-z0-9_.-]{0,31}\$?")


@click.group("user")
def command() -> None:
    """Manage users: viewers see, members submit, admins also manage users and hosts."""


@command.command("list")
@url_option
@json_option
def list_users(url: str | None, as_json: bool) -> None:
    """Print all users."""
    with open_client(url) as client:
        _print(_users(client), as_json)


@command.command("add")
@click.argument("name", type=USER_NAME)
@click.option("--role", type=click.Choice(ROLES), default="member", show_default=True)
@click.option(
    "--system",
    "system_user",
    type=SYSTEM_USER,
    metavar="USER",
    help="The system user as whom their jobs run.",
)
@click.option(
    "--password-stdin", is_flag=True, help="Read a password from standard input in place of making a link."
)
@url_option
@json_option
def add(
    name: str,
    role: str,
    system_user: str | None,
    password_stdin: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Make the user NAME, and print a link by which they log in once and choose a password."""
    from weft.jobs.api.types.accounts import UserView

    password = _password() if password_stdin else None
    with open_client(url) as client:
        body = {"name": name, "role": role, "password": password, "system_user": system_user}
        made = client.connection.send("POST", "/users", UserView, body)
        if password is not None:
            _print((made,), as_json)
        else:
            _print_link(made, _link(client, made), as_json)


@command.command("link")
@click.argument("name", type=USER_NAME)
@url_option
@json_option
def link(name: str, url: str | None, as_json: bool) -> None:
    """Print a link that logs NAME in once, as for a forgotten password."""
    with open_client(url) as client:
        user = _user(client, name)
        _print_link(user, _link(client, user), as_json)


@command.command("role")
@click.argument("name", type=USER_NAME)
@click.argument("role", type=click.Choice(ROLES))
@url_option
@json_option
def role(name: str, role: str, url: str | None, as_json: bool) -> None:
    """Give NAME another role."""
    _change(name, {"role": role}, url, as_json)


@command.command("system")
@click.argument("name", type=USER_NAME)
@click.argument("system_user", type=SYSTEM_USER, required=False)
@click.option("--none", "none", is_flag=True, help="Take the system user away.")
@url_option
@json_option
def system(name: str, system_user: str | None, none: bool, url: str | None, as_json: bool) -> None:
    """Have the jobs of NAME run as SYSTEM_USER, an account of the service's machine."""
    if (system_user is None) != none:
        raise UsageError("a system user or --none must be given, got both or neither; name one of them")
    _change(name, {"system_user": system_user}, url, as_json)


@command.command("quota")
@click.argument("name", type=USER_NAME)
@click.option("--cpus", type=Real(0, 1e6, example=8), help="The most cores that their jobs hold at a time.")
@click.option("--gpus", type=Real(0, 1e6, example=2), help="The most accelerators.")
@click.option("--memory", "memory_bytes", type=Size("64GiB"), metavar="SIZE", help="The most memory.")
@click.option(
    "--weight",
    type=Real(0.001, 1000, example=2),
    help="Their weight in the fair share; 1 at first, and 2 means twice as much.",
)
@click.option("--none", "none", is_flag=True, help="Take limits and weight away.")
@url_option
@json_option
def quota(
    name: str,
    cpus: float | None,
    gpus: float | None,
    memory_bytes: int | None,
    weight: float | None,
    none: bool,
    url: str | None,
    as_json: bool,
) -> None:
    """Limit what the jobs of NAME hold at a time, and set their weight; what is not named stays."""
    import msgspec

    from weft.jobs.api.types.accounts import UserView

    given = {"cpus": cpus, "gpus": gpus, "memory_bytes": memory_bytes, "weight": weight}
    changes = {name: value for name, value in given.items() if value is not None}
    if bool(changes) == none:
        raise UsageError("a limit, a weight or --none must be given, got both or neither; write --cpus 8")
    with open_client(url) as client:
        user = _user(client, name)
        body = {} if none else {**msgspec.to_builtins(user.quota), **changes}
        made = client.connection.send("PUT", f"/users/{user.id}/quota", UserView, body)
    _print((made,), as_json)


@command.command("disable")
@click.argument("name", type=USER_NAME)
@url_option
@json_option
def disable(name: str, url: str | None, as_json: bool) -> None:
    """Keep NAME out; jobs and data stay."""
    _change(name, {"disabled": True}, url, as_json)


@command.command("enable")
@click.argument("name", type=USER_NAME)
@url_option
@json_option
def enable(name: str, url: str | None, as_json: bool) -> None:
    """Let NAME in again."""
    _change(name, {"disabled": False}, url, as_json)


@command.command("rm")
@click.argument("name", type=USER_NAME)
@yes_option
@url_option
@json_option
def remove(name: str, yes: bool, url: str | None, as_json: bool) -> None:
    """Remove NAME, who has no jobs."""
    confirm(f"remove the user {name}?", yes)
    with open_client(url) as client:
        client.connection.send("DELETE", f"/users/{_user(client, name).id}", type(None))
    print_removed(name, as_json)


def _password() -> str:
    password = sys.stdin.readline().rstrip("\n")
    if len(password) < 8:
        raise UsageError(
            "a password must have at least 8 characters, got fewer on standard input; choose a longer one"
        )
    return password


def _users(client: JobsClient) -> tuple[UserView, ...]:
    from weft.jobs.api.types.accounts import UsersAnswer

    return client.connection.get("/users", UsersAnswer).users


def _user(client: JobsClient, name: str) -> UserView:
    known = {user.name: user for user in _users(client)}
    if name not in known:
        raise UsageError(f"a user must be one of the service, got {name}; {suggestion(name, known)}")
    return known[name]


def _change(name: str, changes: dict[str, object], url: str | None, as_json: bool) -> None:
    from weft.jobs.api.types.accounts import UserView

    with open_client(url) as client:
        path = f"/users/{_user(client, name).id}"
        _print((client.connection.send("PATCH", path, UserView, changes),), as_json)


def _link(client: JobsClient, user: UserView) -> LinkAnswer:
    from weft.jobs.api.types.accounts import LinkAnswer

    return client.connection.send("POST", f"/users/{user.id}/link", LinkAnswer)


def _print_link(user: UserView, made: LinkAnswer, as_json: bool) -> None:
    if as_json:
        print_data({"user": user, "link": made})
        return
    click.echo(f"weft: a link that logs {user.name} in once, until {moment(made.expires_ms)}:", err=True)
    click.echo(made.url)


def _print(users: tuple[UserView, ...], as_json: bool) -> None:
    if as_json:
        print_data(users)
        return
    rows = [("user", "role", "state", "password", "runs jobs as", "quota", "weight", "since")]
    for user in users:
        state, password = "disabled" if user.disabled else "enabled", "yes" if user.has_password else "no"
        system_user = plain(user.system_user or "-")
        rows.append(
            (
                plain(user.name),
                user.role,
                state,
                password,
                system_user,
                quota_text(user.quota),
                f"{user.quota.weight:g}",
                moment(user.created_ms),
            )
        )
    click.echo("\n".join(format_table(rows, left=rows[0])))


def quota_text(found: UserQuota) -> str:
    """Return the limits of a user: `8 cores, 2 gpus`, or `-` where there are none."""
    parts = [plural(found.cpus, "core")] if found.cpus is not None else []
    parts += [format_size(int(found.memory_bytes))] if found.memory_bytes is not None else []
    parts += [plural(found.gpus, "gpu")] if found.gpus is not None else []
    return ", ".join(parts) or "-"
