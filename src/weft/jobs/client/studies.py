"""Studies of a service, from Python: `weft.jobs.Client().studies`."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from weft.jobs.api.types.data import ModelView
from weft.jobs.api.types.studies import (
    InteractionsAnswer,
    StudiesAnswer,
    StudyAnswer,
    StudyDetail,
    StudyEventsAnswer,
    TrialsAnswer,
)
from weft.jobs.client.connection import ServiceConnection
from weft.jobs.client.upload import Progress, check_script, upload
from weft.jobs.code.snapshot import take_snapshot
from weft.jobs.spec.read import convert_spec
from weft.tune.results.interactions import ParameterInteraction
from weft.tune.results.views import StudyView, TrialView
from weft.tune.study.config import StudyConfig, convert_config, read_config
from weft.tune.study.events import decode_event
from weft.tune.study.state import SearchState

StudySource = StudyConfig | Mapping[str, Any] | str | Path  # a path if it is text


class ServiceStudies:
    """The studies of one service."""

    def __init__(self, connection: ServiceConnection) -> None:
        self._connection = connection

    def begin(
        self,
        config: StudySource,
        code: str | Path | None = None,
        *,
        warm_start: int | None = None,
        progress: Progress | None = None,
    ) -> StudyView:
        """Begin a study whose trials are jobs; `code` is the folder that is sent along.

        The completed trials of the study `warm_start` are taken over.
        """
        checked, folder = _read(config)
        folder = Path(code) if code is not None else folder
        taken = take_snapshot(folder)
        check_script(convert_spec({"run": list(checked.command)}), folder, taken.snapshot)
        body = {
            "config": msgspec.to_builtins(checked),
            "snapshot": upload(self._connection, taken, progress)[0],
            "warm_start": warm_start,
        }
        return self._made("/studies", body)

    def _made(self, path: str, body: Any) -> StudyView:
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        found = self._connection.send("POST", path, StudyAnswer, body, headers, tries=3).study
        assert found is not None
        return found

    def all(self) -> tuple[StudyView, ...]:
        """Return all studies, the newest first."""
        return self._connection.get("/studies", StudiesAnswer).studies

    def show(self, number: int) -> StudyDetail:
        """Return one study with its settings, insights and importances."""
        return self._connection.get(f"/studies/{number}", StudyDetail)

    def interactions(self, number: int) -> tuple[ParameterInteraction, ...]:
        """Return how far pairs of parameters act together, the most first."""
        return self._connection.get(f"/studies/{number}/interactions", InteractionsAnswer).interactions

    def trials(self, number: int, *, curves: bool = False) -> tuple[TrialView, ...]:
        """Return the trials of a study, by number."""
        query = {"curves": "true" if curves else "false"}
        return self._connection.get(f"/studies/{number}/trials", TrialsAnswer, query).trials

    def state(self, number: int) -> SearchState:
        """Return all that is known of a study, to look at as at one in this process."""
        state = SearchState()
        self.update(number, state, 0)
        return state

    def update(self, number: int, state: SearchState, seen: int) -> int:
        """Bring a state that has seen so many events up to date; return how many it has seen then."""
        found = self._connection.get(f"/studies/{number}/events", StudyEventsAnswer, {"after": seen})
        for event in found.events:
            state.apply(decode_event(msgspec.json.encode(event)))
        return found.next

    def act(self, number: int, verb: str, body: Mapping[str, Any] | None = None) -> StudyView:
        """Stop, pause or resume a study, extend it, clone it, add a trial (`trials`), or act on one
        (`trials/3/promote`, `trials/3/pause`, `trials/3/stop`).
        """
        path = f"/studies/{number}"
        if verb == "clone":
            return self._made(f"{path}/clone", body)
        method, where = ("PATCH", path) if verb == "extend" else ("POST", f"{path}/{verb}")
        found = self._connection.send(method, where, StudyAnswer, None if body is None else dict(body)).study
        assert found is not None
        return found

    def remove(self, number: int) -> None:
        """Remove a study that is over; its jobs stay."""
        self._connection.send("DELETE", f"/studies/{number}", type(None))

    def keep_model(
        self,
        number: int,
        model: str,
        *,
        path: str = "model.onnx",
        alias: str | None = None,
        trial: int | None = None,
    ) -> ModelView:
        """Put a file that the best trial left into the model store, or one of another trial."""
        body = {"model": model, "path": path, "alias": alias, "trial": trial}
        return self._connection.send("POST", f"/studies/{number}/model", ModelView, body)


def _read(config: StudySource) -> tuple[StudyConfig, Path]:
    if isinstance(config, (str, Path)):
        return read_config(Path(config)), Path(config).parent
    return (config if isinstance(config, StudyConfig) else convert_config(dict(config))), Path()
