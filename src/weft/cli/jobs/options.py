"""Options and types of values that the verbs of the jobs service share, and the client behind `--url`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from weft.cli.values import NameValue, Text, Url, ValueType, Whole
from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.jobs.client.client import JobsClient

F = TypeVar("F", bound=Callable[..., Any])
LARGEST_ID = 2**53 - 1

NAME_OF_JOB = Text("a name of letters, digits, dots, dashes and underscores", "digits",
                   like=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # fmt: skip
ALIAS = Text(
    "an alias of letters, digits and ._-, but not latest, which always means the newest version",
    "candidate",
    like=r"(?!latest$)[A-Za-z][A-Za-z0-9._-]{0,99}",
)
USER_NAME = Text("a name of letters, digits and ._@-", "ann", like=r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
VARIABLE_NAME = Text("a name of letters, digits and underscores", "HF_TOKEN",
                     like=r"[A-Za-z_][A-Za-z0-9_]{0,199}")  # fmt: skip
HOST_NAME = Text("the name or address of a host", "gpu1",
                 like=r"[A-Za-z0-9](?:[A-Za-z0-9._@:-]{0,248}[A-Za-z0-9])?")  # fmt: skip
LABEL = Text("a label of letters, digits and ._=/-", "a100", like=r"[A-Za-z0-9][A-Za-z0-9._=/-]{0,99}")
DATABASE = Text("a database's address", "postgresql://weft@db/weft", like=r"[a-z]+(\+[a-z]+)?://[!-~]*")
PRIORITY = Whole(0, 100, example=50)
TAG = NameValue("NAME=VALUE", "lr=0.1", empty=True)


class JobId(Whole):
    """The number of a job: `7` or `job-7`."""

    name = "job"

    def __init__(self) -> None:
        super().__init__(1, LARGEST_ID, example=7)
        self.must = "the number of a job, as weft jobs shows it"

    def parse(self, text: str, param: click.Parameter | None) -> int:
        found = re.fullmatch(r"(?:job-)?([0-9]{1,16})", text, re.ASCII)
        if found is None or not 1 <= int(found[1]) <= LARGEST_ID:
            self.refuse(text, param)
        return int(found[1])


JOB = JobId()


class Duration(ValueType):
    """A time with its units: `90s`, `4h`, `1h30m`."""

    name = "duration"

    def parse(self, text: str, param: click.Parameter | None) -> str:
        from weft.cli.values import flag_of
        from weft.text import parse_duration

        parse_duration(text, flag_of(param))
        return text


class Variable(NameValue):
    """A variable of the environment and its value: `NAME=VALUE`."""

    def __init__(self) -> None:
        super().__init__("NAME=VALUE", "EPOCHS=3", empty=True)

    def parse(self, text: str, param: click.Parameter | None) -> tuple[str, str]:
        name, value = super().parse(text, param)
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,199}", name, re.ASCII) or "\0" in value:
            self.refuse(text, param)
        return name, value


def url_option(function: F) -> F:
    """Add --url."""
    text = "The service (WEFT_URL, the one on this machine, or the last login)."
    return click.option("--url", type=Url(), metavar="URL", help=text)(function)


def json_option(function: F) -> F:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print it as data.")(function)


def yes_option(function: F) -> F:
    """Add --yes."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


@contextmanager
def open_client(url: str | None) -> Iterator[JobsClient]:
    """Yield a client of the service that is meant."""
    try:
        from weft.jobs.client.client import JobsClient
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    with JobsClient(url) as client:
        yield client


def missing_extra(error: ModuleNotFoundError) -> UsageError:
    """Return what to say where the libraries of the service are not installed."""
    return UsageError(f"weft jobs need the package {error.name}, got none; install weft[jobs]")


def print_data(value: Any) -> None:
    """Print an answer of the service as JSON."""
    import msgspec

    click.echo(json.dumps(msgspec.to_builtins(value)))


def print_removed(removed: Any, as_json: bool, named: str = "") -> None:
    """Print what was removed, as data or as the name by which a person calls it."""
    print_data({"removed": removed}) if as_json else click.echo(f"removed {named or removed}")


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost; a program that is not asked must say --yes."""
    import sys

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{question} must be answered, got no terminal to ask at; write --yes")
    click.confirm(question, abort=True, err=True)
