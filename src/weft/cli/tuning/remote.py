"""Studies of a service, as `weft tune` and `weft study` reach them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.tune.results.insights import StudyInsight
    from weft.tune.results.views import StudyView, TrialView
    from weft.tune.study.config import StudyConfig
    from weft.tune.study.state import SearchState


def runs_in_service(wanted: bool | None, url: str | None) -> bool:
    """Return whether a study is the service's: as asked for, or because there is a service."""
    return bool(wanted or url is not None)


def is_remote(name: str, url: str | None) -> bool:
    """Return whether a name means a study of the service: its number, or any with --url."""
    return url is not None or name.isdigit()


def submit_study(config: StudyConfig, code: Path, url: str | None, *, as_json: bool, follows: bool) -> int:
    """Have a study run by the service."""
    raise UsageError("studies of the service are not there yet; write --local")


def service_studies(url: str | None) -> list[StudyView]:
    """Return the studies of the service."""
    return []


def fetch_study(name: str, url: str | None) -> tuple[StudyView, list[TrialView], list[StudyInsight]]:
    """Return one study of the service, with its trials and insights."""
    raise UsageError(f"a study must exist, got {name}; see weft studies")


def fetch_state(name: str, url: str | None) -> SearchState:
    """Return the state of a study of the service."""
    raise UsageError(f"a study must exist, got {name}; see weft studies")


def act(name: str, verb: str, url: str | None, body: dict[str, Any] | None = None) -> None:
    """Have the service do something with a study."""
    raise UsageError(f"a study must exist, got {name}; see weft studies")
