"""Studies of a service, as `weft tune` and `weft study` reach them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.jobs.api.types.studies import StudyDetail
    from weft.jobs.client.client import JobsClient
    from weft.tune.results.insights import StudyInsight
    from weft.tune.results.views import StudyView, TrialView
    from weft.tune.study.config import StudyConfig
    from weft.tune.study.state import SearchState


def runs_in_service(wanted: bool | None, url: str | None) -> bool:
    """Return whether a study is the service's: as asked for, or because one is named, runs here, or has our login."""
    if wanted is not None or url is not None:
        return bool(wanted or url is not None)
    try:
        from weft.jobs.client.address import ServiceMissingError, find_service
    except ModuleNotFoundError:
        return False
    try:
        find_service()
    except ServiceMissingError:
        return False
    return True


def number_of(name: str, url: str | None) -> str:
    """Return the number of the newest study of a name in the service; UsageError if there is none."""
    for view in service_studies(url):
        if view.name == name and view.id is not None:
            return str(view.id)
    raise UsageError(f"a study must exist, here or in the service, got {name}; see weft studies")


def submit_study(
    config: StudyConfig,
    code: Path,
    url: str | None,
    *,
    warm_start: str | None = None,
    as_json: bool,
    follows: bool,
) -> int:
    """Have a study run by the service, and watch it; one of this name that is not over goes on."""
    from weft.cli.jobs.options import open_client, print_data
    from weft.cli.jobs.submit import UploadLine
    from weft.cli.tuning.table import headline
    from weft.tune.results.tables import is_table

    if warm_start is not None and is_table(warm_start):
        raise UsageError(
            f"--warm-start must be a study of the service, got the file {warm_start}; write --local to use it here"
        )
    if warm_start is not None and not warm_start.isdigit():
        warm_start = number_of(warm_start, url)
    with open_client(url) as client:
        seen = 0
        view = None
        if warm_start is None and (going := _unfinished(client, config)) is not None:
            seen = going.events
            view = _go_on(client, going, config)
        if view is None:
            earlier = None if warm_start is None else int(warm_start)
            progress = None if as_json else UploadLine()
            view = client.studies.begin(config, code, warm_start=earlier, progress=progress)
        if as_json:
            print_data(view)
            return 0
        click.echo(headline(view))
        number = view.id
        assert number is not None
        click.echo(f"weft: weft study show {number} shows it, weft study stop {number} ends it", err=True)
        return _follow(client, number, seen) if follows else 0


def _unfinished(client: JobsClient, config: StudyConfig) -> StudyDetail | None:
    """Return the newest study of this name that we may change, if it runs, is paused, or has another budget by now."""
    from weft.tune.study.config import StudyError, changed_settings, convert_config

    for view in client.studies.all():
        if view.name != config.name or view.id is None:
            continue
        found = client.studies.show(view.id)
        if not found.mine:
            continue
        if view.state in ("running", "paused"):
            return found
        try:
            extended = changed_settings(convert_config(found.config), config)
        except StudyError:
            return None  # it is over: this is another
        return found if "budget" in extended else None
    return None


def _go_on(client: JobsClient, going: StudyDetail, config: StudyConfig) -> StudyView:
    """Let a study go on, with what of its settings may change; StudyError where more has changed."""
    from weft.tune.study.config import changed_settings, convert_config

    number = going.study.id
    assert number is not None
    extended = changed_settings(convert_config(going.config), config)
    if extended:
        client.studies.act(number, "extend", extended)
    if going.study.state in ("paused", "stopped"):
        client.studies.act(number, "resume")
    click.echo(f"weft: study {number} goes on, with the code that it was begun with", err=True)
    return client.studies.show(number).study


def _follow(client: JobsClient, number: int, asked_at: int = 0) -> int:
    """Show a study until it is over; Ctrl-C leaves it running. What was asked for is not done at event `asked_at`."""
    from weft.cli.tuning.table import LiveTable, headline
    from weft.tune.results.insights import insights
    from weft.tune.results.views import study_view
    from weft.tune.study.state import SearchState

    state = SearchState()
    table = LiveTable(state)
    seen = client.studies.update(number, state, 0)
    if asked_at:
        table = LiveTable(state)  # what had ended before is known
    try:
        for _ in client.events([f"study:{number}"]):
            seen = client.studies.update(number, state, seen)
            table()
            if state.state in ("completed", "failed", "stopped", "paused") and seen > asked_at:
                break
    except KeyboardInterrupt:
        click.echo(f"weft: study {number} goes on without us", err=True)
        return 130
    table.close()
    click.echo(headline(study_view(state, id=number)))
    for one in insights(state):
        click.echo(f"{one.severity}: {one.text}; {one.advice}", err=True)
    return 0 if state.state == "completed" else 1


def service_studies(url: str | None) -> list[StudyView]:
    """Return the studies of the service; one that does not answer is told of."""
    from weft.cli.jobs.options import open_client
    from weft.jobs.client.address import ServiceMissingError

    try:
        with open_client(url) as client:
            return list(client.studies.all())
    except ServiceMissingError as error:
        if url is not None:
            raise
        click.echo(f"weft: {error}", err=True)
        return []


def fetch_study(name: str, url: str | None) -> tuple[StudyView, list[TrialView], list[StudyInsight]]:
    """Return one study of the service, with its trials, the best first, and insights."""
    from weft.cli.jobs.options import open_client
    from weft.tune.results.views import trial_view

    with open_client(url) as client:
        detail = client.studies.show(int(name))
        jobs = {trial.number: trial.job_id for trial in client.studies.trials(int(name))}
        state = client.studies.state(int(name))
    order = sorted(state, key=lambda t: (t.state == "failed", t.last_score, t.number))
    views = [trial_view(state, trial, curve=True, job_id=jobs.get(trial.number)) for trial in order]
    return detail.study, views, list(detail.insights)


def fetch_state(name: str, url: str | None) -> SearchState:
    """Return the state of a study of the service."""
    from weft.cli.jobs.options import open_client

    with open_client(url) as client:
        return client.studies.state(int(name))


def keep_model(name: str, url: str | None, **wanted: Any) -> int:
    """Have the service keep the model of a trial; return the version that it is."""
    from weft.cli.jobs.options import open_client

    with open_client(url) as client:
        found = client.studies.keep_model(int(name), wanted.pop("model"), **wanted)
    return max(one.version for one in found.versions)


def act(
    name: str, verb: str, url: str | None, body: dict[str, Any] | None = None, *, as_json: bool = False
) -> None:
    """Have the service do something with a study, and say so; or print the study as data."""
    from weft.cli.jobs.options import open_client, print_data

    with open_client(url) as client:
        found = client.studies.act(int(name), verb, body)
    if as_json:
        print_data(found)
        return
    click.echo(f"weft: {told(verb, name, f'study {found.id} ({found.name})')}", err=True)


def remove_study(name: str, url: str | None) -> None:
    """Have the service remove a study that is over."""
    from weft.cli.jobs.options import open_client

    with open_client(url) as client:
        client.studies.remove(int(name))


def told(verb: str, name: str, study: str) -> str:
    """Return what is said once the service has taken a request."""
    if verb == "clone":
        return f"{study} is begun as a clone of study {name}"
    if verb == "trials":
        return f"{study}: a trial was added, and runs as soon as there is a slot"
    if verb.startswith("trials/"):
        _, trial, act_ = verb.split("/")
        return f"{study}: {act_} of trial {trial} was asked for"
    return f"{study}: {verb} was asked for"
