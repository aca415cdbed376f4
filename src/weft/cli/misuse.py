"""Command lines that click cannot read, described as all other errors are: what must hold, what was got, what is next.

    weft: a command of weft must be known, got 'rn'; did you mean run?

Pure: from click's error to a line of text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

import click

from weft.cli.values import flag_of

_COMMAND = re.compile(r"No such command '(.*)'\.?", re.DOTALL)
_CHOICE = re.compile(r"'(.*)' is not one of .*", re.DOTALL)
_EXTRA = re.compile(r"Got unexpected extra arguments? \((.*)\)", re.DOTALL)


def describe_misuse(error: click.UsageError) -> str:
    """Return what to say of a command line that click refuses."""
    if isinstance(error, click.BadOptionUsage) and "requires" in error.message:
        return f"{error.option_name} must have a value, got none; write {error.option_name} VALUE"
    if error.ctx is None:
        return error.format_message()
    ctx = error.ctx
    if isinstance(error, click.NoSuchOption):
        known = [name for param in ctx.command.params for name in (*param.opts, *param.secondary_opts)]
        return _unknown("an option", error.option_name, known, ctx)
    if isinstance(error, click.MissingParameter) and error.param is not None:
        return _missing(error.param, ctx)
    command = _COMMAND.fullmatch(error.message)
    if command is not None and isinstance(ctx.command, click.Group):
        return _unknown("a command", command[1], ctx.command.list_commands(ctx), ctx)
    choice = _CHOICE.fullmatch(error.message)
    if choice is not None and isinstance(error, click.BadParameter) and error.param is not None:
        return _not_a_choice(error.param, choice[1])
    extra = _EXTRA.fullmatch(error.message)
    if extra is not None:
        return f"{ctx.command_path} must be written {_usage(ctx)!r}, got {extra[1]!r} as well; leave it out"
    return f"{error.format_message().rstrip('.')}; see {ctx.command_path} --help"


def _unknown(what: str, given: str, known: Iterable[str], ctx: click.Context) -> str:
    near = get_close_matches(given, list(known), n=1)
    advice = f"did you mean {near[0]}?" if near else f"see {ctx.command_path} --help"
    return f"{what} of {ctx.command_path} must be known, got {given!r}; {advice}"


def _missing(param: click.Parameter, ctx: click.Context) -> str:
    return (
        f"{ctx.command_path} must be given {flag_of(param)}, got none; write {_usage(ctx)!r}, or see "
        f"{ctx.command_path} --help"
    )


def _not_a_choice(param: click.Parameter, given: str) -> str:
    choices = [str(choice) for choice in getattr(param.type, "choices", ())]
    near = get_close_matches(given, choices, n=1)
    advice = (
        f"did you mean {near[0]}?"
        if near
        else f"write {flag_of(param)} {choices[0]}"
        if choices
        else "see --help"
    )
    return f"{flag_of(param)} must be one of {', '.join(choices)}, got {given!r}; {advice}"


def _usage(ctx: click.Context) -> str:
    """Return how a command is written: `weft scale [OPTIONS] RUN`."""
    return " ".join([ctx.command_path, *ctx.command.collect_usage_pieces(ctx)])
