"""Studies that `weft study` names: of this machine by name, of the service by number or name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.values import Text, Whole

if TYPE_CHECKING:
    from weft.tune.study.core import StudyCore
    from weft.tune.study.state import SearchState

STUDY = Text(
    "the name of a study, or its number in the service", "digits", like=r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
)
TRIAL = Whole(0, 999_999, example=3)


def folder_of(name: str) -> Path:
    """Return the folder of a study of this machine."""
    from weft.tune.study.home import find_study, studies_folder

    return find_study(name, studies_folder())


def state_of(name: str) -> SearchState:
    """Return the state of a study of this machine."""
    from weft.tune.study.journal import read_events
    from weft.tune.study.state import SearchState

    return SearchState.of(read_events(folder_of(name)))


def find_state(name: str, url: str | None) -> tuple[str | None, SearchState]:
    """Return the number of a study in the service, None for one of this machine, and its state."""
    number = service_number(name, url)
    if number is None:
        return None, state_of(name)
    from weft.cli.tuning.remote import fetch_state

    return number, fetch_state(number, url)


@contextmanager
def core_of(folder: Path) -> Iterator[StudyCore]:
    """Yield the core of a study that no process runs."""
    from weft.tune.study.core import replay
    from weft.tune.study.journal import StudyJournal

    journal = StudyJournal(folder)
    try:
        yield replay(journal.read(), journal.write)
    finally:
        journal.close()


def ask(name: str, request: dict[str, Any], *, as_json: bool = False) -> None:
    """Have a request carried out, by the process that runs the study or here if none does; say so, or print data."""
    told = _asked(name, request)
    if as_json:
        from weft.cli.jobs.options import print_data
        from weft.tune.results.views import study_view

        print_data(study_view(state_of(name)))
    else:
        click.echo(f"weft: study {name}{told}", err=True)


def _asked(name: str, request: dict[str, Any]) -> str:
    """Do what `ask` does; return what follows the study's name in the sentence about it."""
    import time

    from weft.tune.study.journal import is_held
    from weft.tune.study.requests import carry_out, post

    folder = folder_of(name)
    if is_held(folder):
        post(folder, request)
        return f" was asked to {request['do']}"
    with core_of(folder) as core:
        core.interrupted("its process was gone", at_s=time.time())
        carry_out(core, request, time.time())
        waits = core.state.state == "running"
    more = f"; weft study resume {name} runs it" if waits else ""
    return f": {request['do']} is done{more}"


def service_number(name: str, url: str | None) -> str | None:
    """Return the number of a study of the service; None: it is one of this machine.

    A name means a study of this machine first, then the newest of that name in the service.
    """
    if name.isdigit():
        return name
    from weft.cli.tuning.remote import number_of, runs_in_service
    from weft.tune.study.home import list_studies, studies_folder

    if url is None and (name in list_studies(studies_folder()) or not runs_in_service(None, None)):
        return None
    return number_of(name, url)
