"""A worker's link to the agent of its host: views come in, news go out, one JSON object a line.

Agent to worker: `welcome` (the run's secret and limits), `view` (what is decided, and what this worker is called),
`drain` (leave at the next step), `over` (all others are done).
Worker to agent, `say`: hello, ready, grouped, healed, commit, broken, leaving, saved, header, refused, finished.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn

from weft.elastic.membership.view import View
from weft.errors import CollectiveError, UsageError

DESCRIPTOR = "WEFT_ELASTIC"  # the variable that holds ours, and the beat's
Message = dict[str, Any]


class RunOver(Exception):  # noqa: N818 (it is not an error)
    """The run is finished: there will be no further view."""


class AgentLink:
    """The worker's end."""

    def __init__(self, connection: socket.socket, *, on_urgent: Callable[[], None] = lambda: None) -> None:
        self._connection = connection
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._closed = self._over = False
        self.on_urgent = on_urgent
        self.view: View | None = None  # the newest that is decided
        self._urgent = -1  # the newest view for which the end of the step is not waited for: somebody is lost
        self.name = ""
        self.drain = False
        self._welcome: Message | None = None
        threading.Thread(target=self._listen, name="weft-link", daemon=True).start()

    def tell(self, say: str, **news: Any) -> None:
        """Say something; an agent that is gone takes us with it, so nothing is to be done about that here."""
        data = json.dumps({"say": say, **news}, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            try:
                self._connection.sendall(data)
            except OSError:
                self._end()

    def welcome(self) -> Message:
        """What the agent tells every worker first."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._welcome is not None)
            if self._welcome is None:
                raise SystemExit(1)
            return self._welcome

    def await_view(self, newer_than: int) -> View:
        """The next view that is decided."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._over or self.newer_than(newer_than))
            if self._over:
                raise RunOver
            if self._closed or self.view is None:
                raise SystemExit(1)
            return self.view

    def refuse(self, error: UsageError, *, for_all: bool) -> NoReturn:
        """We cannot take part, or nobody can: say why, and end as what is misused does."""
        if for_all:  # it is told once, at the end of the run
            self.tell("refused", why=str(error), code=error.exit_code)
        else:
            print(f"weft: {error}", file=sys.stderr, flush=True)
        raise SystemExit(error.exit_code)

    def newer_than(self, number: int) -> bool:
        return self.view is not None and self.view.number > number

    def lost_someone(self, number: int) -> bool:
        """Whether a newer view is there that must not wait."""
        return self._urgent > number

    def _listen(self) -> None:
        with self._connection.makefile("rb") as lines:
            try:
                for line in lines:
                    self._hear(json.loads(line))
            except OSError:
                pass
        self._end()

    def _hear(self, message: Message) -> None:
        match message["do"]:
            case "drain":
                self.drain = True
            case "welcome":
                with self._changed:
                    self._welcome, self.name = message, message["name"]
                    self._changed.notify_all()
            case "over":
                with self._changed:
                    self._over = True
                    self._changed.notify_all()
            case "view":
                self._hear_view(message)

    def _hear_view(self, message: Message) -> None:
        view = View.from_json(message["view"])
        with self._changed:
            if self.view is None or view.number > self.view.number:
                self.view, self.name = view, message["name"]
                if message["urgent"]:
                    self._urgent = view.number
            self._changed.notify_all()
        if message["urgent"]:
            self.on_urgent()

    def _end(self) -> None:
        """The agent is gone. It would not let us live, so nobody waits for us any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class FixedLink(AgentLink):
    """For a world that was made by another launcher: one view, and whatever breaks it ends the run."""

    def __init__(self, view: View, rank: int) -> None:
        self.view, self.name, self.drain = view, view.members[rank].worker, False
        self.on_urgent = lambda: None

    def tell(self, say: str, **news: Any) -> None:
        if say == "broken":
            raise CollectiveError(
                f"{news['why']}; start the script with weft run --elastic to have it go on without those who are lost"
            )

    def refuse(self, error: UsageError, *, for_all: bool) -> NoReturn:
        """The script is told."""
        raise error

    def await_view(self, newer_than: int) -> View:
        assert self.view is not None
        return self.view

    def lost_someone(self, number: int) -> bool:
        return False


def inherited() -> tuple[socket.socket, int] | None:
    """The link and the beat that an agent left us, once; a child of ours must not find them again."""
    given = os.environ.pop(DESCRIPTOR, None)
    if given is None:
        return None
    link, page = map(int, given.split(","))
    os.set_inheritable(link, False)
    os.set_inheritable(page, False)
    return socket.socket(fileno=link), page
