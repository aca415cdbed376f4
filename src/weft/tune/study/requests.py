"""Requests to a study that another process may be running: a file of lines that the runner reads and carries out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from weft.errors import WeftError
from weft.tune.schedulers.actions import TrialAction
from weft.tune.study.config import StudyError
from weft.tune.study.core import StudyCore
from weft.tune.study.events import InboxRead
from weft.tune.study.journal import INBOX


def carry_out(core: StudyCore, request: dict[str, Any], at_s: float) -> list[TrialAction]:
    """Do what a request says; return what is to be done with running trials."""
    verb = request.get("do")
    trial = request.get("trial")
    if verb == "stop":
        return core.stop_all(at_s=at_s) if trial is None else core.stop_trial(trial, at_s=at_s)
    if verb == "pause":
        return core.pause_all(at_s=at_s) if trial is None else core.pause_trial(trial, at_s=at_s)
    if verb == "promote":
        core.promote(request["trial"], request.get("until"), at_s=at_s)
        return []
    if verb == "resume":
        core.move("running", "resumed on request", at_s=at_s)
    elif verb == "extend":
        core.extend(request["changes"], at_s=at_s)
    elif verb == "add":
        core.add(request["params"], at_s=at_s)
        if core.state.state == "completed":
            core.move("running", "a trial was added", at_s=at_s)
    else:
        raise StudyError(
            f"a request must be stop, pause, resume, promote, extend or add, got {verb!r}; see weft study"
        )
    return []


def post(folder: Path, request: dict[str, Any]) -> None:
    """Leave a request for the process that runs a study."""
    line = json.dumps(request).encode() + b"\n"
    handle = os.open(folder / INBOX, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


class StudyInbox:
    """The requests to a study that this process runs."""

    def __init__(self, core: StudyCore, folder: Path, complain: Any = None) -> None:
        self._core, self._path = core, folder / INBOX
        self._complain = complain or (lambda text: None)

    def look(self, at_s: float) -> list[TrialAction]:
        """Carry out what has come; what cannot be done is said, and left."""
        start = self._core.state.inbox
        try:
            if self._path.stat().st_size <= start:
                return []
            with self._path.open("rb") as file:
                file.seek(start)
                data = file.read()
        except FileNotFoundError:
            return []
        actions: list[TrialAction] = []
        end = data.rfind(b"\n") + 1
        for line in data[:end].splitlines():
            try:
                actions += carry_out(self._core, json.loads(line), at_s)
            except (WeftError, ValueError, KeyError) as error:
                self._complain(f"a request was left: {error}")
        self._core.say(InboxRead(position=start + end, at_s=at_s))
        return actions
