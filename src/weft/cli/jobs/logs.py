"""`weft logs`: what a job has printed, and prints."""

from __future__ import annotations

import re
from typing import Any

import click

from weft.cli.jobs.following import follow, log_line
from weft.cli.jobs.options import JOB, json_option, open_client, print_data, url_option
from weft.cli.values import ValueType, Whole
from weft.errors import UsageError


class Expression(ValueType):
    """A regular expression."""

    name = "regex"
    must = "a regular expression of at most 1000 characters"
    example = "'loss|error'"

    def parse(self, text: str, param: click.Parameter | None) -> str:
        try:
            re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            self.refuse(text, param, str(error))
        return text if 0 < len(text) <= 1000 and text.isprintable() else self.refuse(text, param)


class RankChoice(Whole):
    """A rank, or the word `launcher` for the launcher's own lines."""

    def __init__(self) -> None:
        super().__init__(0, 65_535, example=0)
        self.must += ", or launcher"

    def parse(self, text: str, param: click.Parameter | None) -> int:
        return -1 if text == "launcher" else super().parse(text, param)


@click.command("logs")
@click.argument("job", type=JOB)
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on until the job has ended.")
@click.option("--rank", type=RankChoice(), metavar="RANK", help="Of one worker, or launcher; all by default.")
@click.option("--grep", type=Expression(), metavar="REGEX", help="Only lines that match.")
@click.option("--tail", type=Whole(0, 10_000, example=100), metavar="N", help="Begin N lines before the end.")
@click.option("--attempt", type=Whole(1, 10_000, example=1), metavar="N", help="Of an earlier attempt.")
@url_option
@json_option
def command(job: int, follows: bool, as_json: bool, url: str | None, **choice: Any) -> int:
    """Print the log of JOB: each line with the rank that wrote it."""
    attempt = choice.pop("attempt")
    if follows and attempt is not None:
        raise UsageError("--follow must be without --attempt, got both; earlier attempts do not go on")
    with open_client(url) as client:
        handle = client.job(job)
        if follows and not as_json:
            return follow(handle, **choice)
        for line in handle.logs(follow=follows, attempt=attempt, **choice):
            print_data(line) if as_json else click.echo(log_line(line))
    return 0
