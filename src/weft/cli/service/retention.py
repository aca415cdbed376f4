"""`weft retention`: remove what is kept no longer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.cli.jobs.options import confirm, json_option, open_client, print_data, url_option, yes_option
from weft.cli.jobs.printing import moment, plain
from weft.cli.values import Size, Whole
from weft.errors import UsageError
from weft.text import format_size, format_table, plural

if TYPE_CHECKING:
    from weft.jobs.api.types.cluster import RetentionAnswer


@click.command("retention")
@click.option("--days", type=Whole(1, 36_500, example=90), help="Keep jobs for so long after their end.")
@click.option(
    "--most", "most_bytes", type=Size("500GB"), metavar="SIZE", help="Keep so much; the oldest go first."
)
@click.option("--apply", "applied", is_flag=True, help="Remove them; without it they are only listed.")
@yes_option
@url_option
@json_option
def command(
    days: int | None, most_bytes: int | None, applied: bool, yes: bool, url: str | None, as_json: bool
) -> None:
    """List the jobs that are kept no longer, or remove them with --apply: pinned ones stay."""
    from weft.jobs.api.types.cluster import RetentionAnswer

    if days is None and most_bytes is None:
        raise UsageError("weft retention must have --days or --most, got neither; write --days 90")
    if applied:
        confirm("remove these jobs with all their files?", yes)
    body = {"days": days, "most_bytes": most_bytes, "dry_run": not applied}
    with open_client(url) as client:
        found = client.connection.send("POST", "/retention", RetentionAnswer, body)
    print_data(found) if as_json else click.echo("\n".join(_lines(found)))


def _lines(found: RetentionAnswer) -> list[str]:
    if not found.jobs:
        return ["all jobs are kept"]
    rows = [("id", "name", "ended", "size", "why")]
    rows += [
        (str(job.id), plain(job.name), moment(job.ended_ms), format_size(job.bytes), plain(job.why))
        for job in found.jobs
    ]
    verb = "would go; --apply removes them" if found.dry_run else "removed"
    end = f"{plural(len(found.jobs), 'job')} of {format_size(found.bytes)} {verb}"
    return [*format_table(rows, left=("name", "ended", "why")), end]
