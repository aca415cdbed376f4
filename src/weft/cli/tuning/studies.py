"""`weft studies`: searches of this machine and of the service."""

from __future__ import annotations

import click

from weft.cli.jobs.options import json_option, print_data, url_option


@click.command("studies")
@click.option(
    "--service/--local", "service", default=None, help="Only those of the service, or of this machine."
)
@url_option
@json_option
def command(service: bool | None, url: str | None, as_json: bool) -> None:
    """List studies, those that changed last first."""
    from weft.cli.tuning.remote import runs_in_service, service_studies
    from weft.cli.tuning.table import study_table
    from weft.tune.results.views import study_view
    from weft.tune.study.home import list_studies, studies_folder
    from weft.tune.study.journal import read_events
    from weft.tune.study.state import SearchState

    home, found = studies_folder(), []
    if service is not True and url is None:
        found = [study_view(SearchState.of(read_events(home / name))) for name in list_studies(home)]
    if runs_in_service(service, url):
        found = [*service_studies(url), *found]
    if as_json:
        print_data(found)
    elif not found:
        click.echo("no studies; weft tune makes one")
    else:
        click.echo("\n".join(study_table(found)))
