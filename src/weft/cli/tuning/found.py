"""Studies that `weft study` names: of this machine by name, of the service by number."""

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


def ask(name: str, request: dict[str, Any]) -> None:
    """Have a request carried out: by the process that runs the study, or here if none does."""
    import time

    from weft.tune.study.journal import is_held
    from weft.tune.study.requests import carry_out, post

    folder = folder_of(name)
    if is_held(folder):
        post(folder, request)
        click.echo(f"weft: study {name} was asked to {request['do']}", err=True)
        return
    with core_of(folder) as core:
        core.interrupted("its process was gone", at_s=time.time())
        carry_out(core, request, time.time())
    click.echo(f"weft: study {name}: {request['do']} is done", err=True)


def is_in_service(name: str, url: str | None) -> bool:
    """Return whether a study is the service's."""
    from weft.cli.tuning.remote import is_remote

    return is_remote(name, url)
