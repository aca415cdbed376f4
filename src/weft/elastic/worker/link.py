"""A worker's link to the agent of its host: views come in, news go out, one JSON object a line (`messages.py`)."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Mapping
from typing import NoReturn

from weft.elastic.membership.view import View
from weft.elastic.worker.messages import (
    FROM_AGENT,
    DrainWorker,
    FromWorker,
    GroupBroken,
    NewView,
    PauseWorker,
    RunFinished,
    RunRefused,
    ToWorker,
    WelcomeWorker,
)
from weft.errors import CollectiveError, UsageError
from weft.messages import encode

# The variable that holds the descriptors of a worker's link and of its progress page, and the link's inode.
DESCRIPTORS = "WEFT_ELASTIC"


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
        self.pausing = False  # the run is to end as soon as a step is saved
        self._welcome: WelcomeWorker | None = None
        threading.Thread(target=self._listen, name="weft-link", daemon=True).start()

    def tell(self, news: FromWorker) -> None:
        """Send a message; an agent that is gone takes us with it, so nothing is to be done about that here."""
        data = encode(news)
        with self._sending:
            try:
                self._connection.sendall(data)
            except OSError:
                self._end()

    def welcome(self) -> WelcomeWorker:
        """Return the first message of the agent to each worker."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._welcome is not None)
            if self._welcome is None:
                raise SystemExit(1)
            return self._welcome

    def await_view(self, newer_than: int, timeout_s: float | None = None) -> View:
        """The next view that is decided; TimeoutError if there is none in time."""
        with self._changed:
            came = self._changed.wait_for(
                lambda: self._closed or self._over or self.newer_than(newer_than), timeout_s
            )
            if not came:
                raise TimeoutError
            if self._over:
                raise RunOver
            if self._closed or self.view is None:
                raise SystemExit(1)
            return self.view

    def await_end(self, view: int) -> bool:
        """Wait for what becomes of a run whose loop the script has left early in a view.

        Return True if the run is over, as all members left, and False if the others went on without this worker; they
        may be done as well by now.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._over or self._left_out(view))
            if self._left_out(view):
                return False
            if not self._over:
                raise SystemExit(1)
            return True

    def _left_out(self, view: int) -> bool:
        return self.view is not None and self.view.number > view and self.view.rank_of(self.name) is None

    def refuse(self, error: UsageError, *, for_all: bool) -> NoReturn:
        """Say why this worker, or any, cannot take part, and end with the exit code of a misuse."""
        if for_all:  # it is told once, at the end of the run
            self.tell(RunRefused(str(error), error.exit_code))
        else:
            print(f"weft: {error}", file=sys.stderr, flush=True)
        raise SystemExit(error.exit_code)

    @property
    def over(self) -> bool:
        """Return whether the other members are done, so that there will be no further view."""
        return self._over

    def newer_than(self, number: int) -> bool:
        return self.view is not None and self.view.number > number

    def lost_someone(self, number: int) -> bool:
        """Return whether a newer view is there that must not wait."""
        return self._urgent > number

    def _listen(self) -> None:
        with self._connection.makefile("rb") as lines:
            try:
                for line in lines:
                    if line.endswith(b"\n"):  # or the agent died in the middle of it
                        self._hear(FROM_AGENT.decode(line))
            except OSError:
                pass
        self._end()

    def _hear(self, message: ToWorker) -> None:
        with self._changed:
            match message:
                case DrainWorker():
                    self.drain = True
                case PauseWorker():
                    self.pausing = True
                case WelcomeWorker(name=name):
                    self._welcome, self.name = message, name
                case RunFinished():
                    self._over = True
                case NewView():
                    self._hear_view(message)
            self._changed.notify_all()
        if isinstance(message, NewView) and message.urgent:
            self.on_urgent()

    def _hear_view(self, message: NewView) -> None:
        view = message.view
        if self.view is None or view.number > self.view.number:
            self.view, self.name = view, message.name
            if message.urgent:
                self._urgent = view.number

    def _end(self) -> None:
        """Note that the agent is gone, and wake the threads that wait for it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class FixedLink(AgentLink):
    """The link in a world of another launcher: it has one view, and any break of it ends the run."""

    def __init__(self, view: View, rank: int) -> None:
        self.view, self.name = view, view.members[rank].worker
        self.drain = self.pausing = self._over = False
        self.on_urgent = lambda: None

    def tell(self, news: FromWorker) -> None:
        if isinstance(news, GroupBroken):
            raise CollectiveError(
                f"{news.why}; start the script with weft run --elastic to have it go on without those who are lost"
            )

    def refuse(self, error: UsageError, *, for_all: bool) -> NoReturn:
        """Raise the error in the script."""
        raise error

    def await_view(self, newer_than: int, timeout_s: float | None = None) -> View:
        assert self.view is not None
        return self.view

    def await_end(self, view: int) -> bool:
        return True

    def lost_someone(self, number: int) -> bool:
        return False


def inherited(environ: Mapping[str, str]) -> tuple[socket.socket, int] | None:
    """Take the link and the progress page that an agent left this process; None if there are none, or no longer.

    The variable outlives the descriptors in it. Both are moved to other numbers, so neither a second call nor a child
    of this process takes what has those numbers by then for a link: that would have another inode.
    """
    given = environ.get(DESCRIPTORS)
    if given is None:
        return None
    link, page, inode = map(int, given.split(","))
    try:
        found = os.fstat(link)
    except OSError:
        return None
    if not stat.S_ISSOCK(found.st_mode) or found.st_ino != inode:
        return None
    return socket.socket(fileno=_move(link)), _move(page)


def _move(descriptor: int) -> int:
    """Give an open file another number, which children do not inherit, and close the one it had."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved
