"""Collectives on their way, where the network moves only while it is asked: we ask, and rest ever longer in between."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any

from weft.errors import CollectiveError

UNDER_WAY = 3  # passages at once
LOOK_S = 0.2  # between two looks at who is still there

Waits = list[tuple[int, Any]]  # MPI's requests, each with the peer it is for
Steps = Generator[Waits, None, None]  # a collective: what it waits for, again and again


class Passage:
    """One collective on its way."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._waits: Waits = []
        self._requests: list[Any] = []
        self.ended = False
        self._over = threading.Event()
        self._error: BaseException | None = None

    def step(self, test_all: Callable[[list[Any]], bool]) -> bool:
        """Go on if what we wait for is there; whether it was."""
        if self._requests and not test_all(self._requests):
            return False
        waits = next(self._steps, None)
        self._waits = waits or []
        self._requests = [request for _, request in self._waits]
        self.ended = waits is None
        return True

    def missing(self) -> list[int]:
        """The peers we still wait for."""
        return list(dict.fromkeys(peer for peer, request in self._waits if not request.Test()))

    def finish(self, error: BaseException | None = None) -> None:
        self._error = error
        self._over.set()

    def wait(self) -> None:
        """Return when it has ended, and all before it."""
        self._over.wait()
        if self._error is not None:
            raise self._error


class PassageMover:
    """Carries out passages in order, a few at a time: here and now, or in a thread of its own."""

    def __init__(
        self,
        test_all: Callable[[list[Any]], bool],
        *,
        patience_s: float,  # during which we ask again at once
        look: Callable[
            [float, list[int]], None
        ],  # raises if it is in vain to wait any longer for these peers
        explain: Callable[[BaseException], BaseException],  # what to raise for what was raised
        abandon: Callable[[Iterable[object]], None],  # keeps memory for good that MPI may still use
    ) -> None:
        self._test_all = test_all
        self._patience_s = patience_s
        self._look, self._explain, self._abandon = look, explain, abandon
        self._moving = threading.Lock()
        self._posted: deque[Passage] = deque()
        self._wanted = threading.Event()
        self._server: threading.Thread | None = None
        self._failure: BaseException | None = None  # of the thread that served
        self._closed = False

    @property
    def busy(self) -> bool:
        return self._moving.locked() or bool(self._posted)

    def run(self, steps: Sequence[Steps]) -> None:
        """Carry them out, here and now."""
        self._drive(map(Passage, steps))

    def post(self, steps: Sequence[Steps]) -> Passage:
        """Begin, and go on in the background; the last one is returned, which ends after the others."""
        passages = [Passage(each) for each in steps]
        if self._server is None:
            self._server = threading.Thread(target=self._serve, name="weft-mpi", daemon=True)
            self._server.start()
        self._posted.extend(passages)
        self._wanted.set()
        if self._failure is not None:
            self._turn_away()
        return passages[-1]

    def close(self) -> None:
        self._closed = True
        self._wanted.set()

    def _serve(self) -> None:
        try:
            while True:
                self._wanted.wait()
                self._wanted.clear()
                if self._closed:
                    raise CollectiveError("it was closed")
                self._drive(iter(self._next_posted, None))
        except BaseException as error:
            self._failure = error
            self._turn_away()

    def _turn_away(self) -> None:
        """End what nobody will carry out any more."""
        while (passage := self._next_posted()) is not None:
            passage.finish(self._failure)

    def _next_posted(self) -> Passage | None:
        try:
            return self._posted.popleft()
        except IndexError:
            return None

    def _drive(self, passages: Iterator[Passage]) -> None:
        with self._moving:
            under_way: deque[Passage] = deque()
            clock = _IdleClock()
            try:
                while self._fill(under_way, passages):
                    moved = [passage.step(self._test_all) for passage in under_way if not passage.ended]
                    if any(moved):
                        clock.reset()
                        while under_way and under_way[0].ended:
                            under_way.popleft().finish()
                    else:
                        self._rest(clock, under_way[0])
            except BaseException as error:
                failure = self._explain(error)
                self._abandon(under_way)  # nothing of it will ever end
                for passage in under_way:
                    passage.finish(failure)
                raise failure from error

    def _fill(self, under_way: deque[Passage], passages: Iterator[Passage]) -> bool:
        while len(under_way) < UNDER_WAY and (passage := next(passages, None)) is not None:
            under_way.append(passage)
        return bool(under_way)

    def _rest(self, clock: _IdleClock, passage: Passage) -> None:
        """Let others have the core, the longer the longer nothing has come."""
        idle_s = clock.idle_s()
        if idle_s < self._patience_s:
            os.sched_yield()
            return
        time.sleep(min(5e-4, idle_s / 20))
        if clock.time_to_look():
            self._look(idle_s, passage.missing())


class _IdleClock:
    """How long nothing has come."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._since = self._looked = time.monotonic()

    def idle_s(self) -> float:
        return time.monotonic() - self._since

    def time_to_look(self) -> bool:
        now = time.monotonic()
        if now - self._looked < LOOK_S:
            return False
        self._looked = now
        return True
