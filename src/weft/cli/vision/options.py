"""Options that verbs about data sets share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from weft.cli.jobs.options import json_option, url_option
from weft.cli.paths import PossibleFolder
from weft.cli.values import Text
from weft.cli.vision.places import Report

F = TypeVar("F", bound=Callable[..., Any])
NAME = Text("the name of a data set", "flowers", like=r"[^@/\\\x00-\x1f]{1,64}")


def library_option(function: F) -> F:
    """Add --library."""
    text = "The folder of the library (the user's own, in the data folder)."
    return click.option("--library", type=PossibleFolder(), metavar="FOLDER", help=text)(function)


def place_options(function: F) -> F:
    """Add --library, --url and --json."""
    return library_option(url_option(json_option(function)))


def progress(as_json: bool) -> Report:
    """Return what prints how far work is, on standard error where that is a terminal."""
    if as_json or not sys.stderr.isatty():
        return lambda done, total: None

    def show(done: int, total: int) -> None:
        click.echo(f"\r{done} of {total}{'' if done < total else chr(10)}", nl=False, err=True)

    return show
