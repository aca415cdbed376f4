"""One version of a model at work: its replicas, its queue, its figures."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter

from weft.serve.card import Card
from weft.serve.server.models.onnx_runner import Runner, splits_by_rows
from weft.serve.server.models.queue import Feeds, RequestQueue
from weft.serve.server.models.tally import Tally
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocols.tensors import Array
from weft.serve.server.protocols.v2 import check_feeds, check_tokens
from weft.serve.server.refusal import RefusalError

# A run this short costs less than the way to a thread and back, so it is done on the event loop.
QUICK_S = 0.0004
_STRIKE_S = 0.01  # one this long, when a short one was expected, held everybody up
_STRIKES = 5.0  # times that; after so much of it the next ones go to a thread
_REST_S = (1.0, 300.0)  # for so long, twice as long each time
_FOLLOW = 0.05  # how fast the estimate of a run's time follows what is seen


class Model:
    """A version that is loaded. Made on the event loop from runners that are warm."""

    def __init__(
        self,
        name: str,
        version: str,
        runners: list[Runner],
        options: ModelOptions,
        pace: Pace,
        batch_reason: str = "",
        tally: Tally | None = None,
    ) -> None:
        first = runners[0]
        self.name = name
        self.version = version
        self.options = options
        self.card: Card = first.card
        self.platform = first.platform
        self.processor = first.processor
        self.inputs = {spec.name: spec for spec in first.inputs}
        self.outputs = first.outputs
        self.output_names = [spec.name for spec in first.outputs]
        self.batches = options.max_batch > 1 and splits_by_rows(first)
        self.batch_reason = batch_reason  # why runs may hold as many rows as they may
        self.tally = tally or Tally()
        self.queue = RequestQueue(runners, options, self.tally, pace.saw)
        self._pace = pace
        self._inline = options.delay_ms == 0
        self._users = 0
        self._retired = False

    @contextmanager
    def held(self) -> Iterator[Model]:
        """While held it is not closed, though another version may have taken its place."""
        self._users += 1
        try:
            yield self
        finally:
            self._users -= 1
            self._maybe_close()

    def start(
        self, feeds: Feeds, timeout_s: float | None = None
    ) -> list[Array] | asyncio.Future[list[Array]]:
        """The outputs, if the run is short enough to be done at once; otherwise a future of them."""
        check_feeds(feeds, self.inputs)
        if self.card.tokens is not None:
            check_tokens(feeds, self.card.tokens.limit)
        size = 0
        for array in feeds.values():
            size += array.nbytes
        if self._inline and self._pace.quick(size) and (runner := self.queue.spare()) is not None:
            began = perf_counter()
            results = runner.run(feeds)
            took = perf_counter() - began
            self._pace.ran_here(size, took)
            self.tally.at_once += 1
            self.tally.ran(rows_of(feeds), took)
            return results
        rows, kind = rows_of(feeds), self._kind(feeds)
        return self.queue.submit(feeds, rows, kind, min(timeout_s or 1e9, self.options.timeout_s))

    def choose(self, outputs: tuple[str, ...], results: list[Array]) -> list[tuple[str, Array]]:
        """The outputs that a request wants, by name."""
        if not outputs:
            return list(zip(self.output_names, results))  # noqa: B905  # as many as it has
        known = dict(zip(self.output_names, results, strict=True))
        return [(name, known[name]) for name in outputs]

    def has_rows(self, name: str) -> bool:
        """Return whether the first size of an output is the number of rows."""
        return any(spec.name == name and spec.shape[:1] == (-1,) for spec in self.outputs)

    def check_outputs(self, outputs: tuple[str, ...]) -> None:
        for name in outputs:
            if name not in self.output_names:
                raise RefusalError(400, f"outputs must be among {', '.join(self.output_names)}, got {name!r}")

    def retire(self) -> None:
        """No new requests will come; close when the last one is answered."""
        self._retired = True
        self._maybe_close()

    async def drained(self) -> None:
        while self._users or not self.queue.idle:
            await asyncio.sleep(0.01)

    def _maybe_close(self) -> None:
        if self._retired and not self._users:
            if self.queue.idle:
                self.queue.close()
            else:  # a copy for a shadow, or one whose client left, is still being computed
                asyncio.get_running_loop().call_later(0.05, self._maybe_close)

    def _kind(self, feeds: Feeds) -> Hashable:
        if self.batches and len({len(array) for array in feeds.values()}) == 1:
            return tuple((name, array.shape[1:]) for name, array in sorted(feeds.items()))
        return object()  # like no other


class Pace:
    """The estimated time of a run for inputs of a size, which follows the runs that are seen.

    One run that the machine interrupted says little, so it counts for little; several in a row do not happen by chance.
    """

    def __init__(self) -> None:
        self._bytes = 1
        self._seconds = float("inf")
        self._strikes = 0.0
        self._rest_s, self._rests_until = _REST_S[0], 0.0

    def quick(self, size: int) -> bool:
        """Return whether a run on a number of bytes would be over in a moment."""
        seconds = self._seconds if size <= self._bytes else self._seconds * size / self._bytes
        if seconds > QUICK_S:
            return False
        return not self._rests_until or perf_counter() > self._rests_until

    def saw(self, size: int, seconds: float) -> None:
        if self._seconds == float("inf"):
            self._bytes, self._seconds = max(1, size), seconds
            return
        if size > self._bytes:
            seconds *= self._bytes / size
        self._seconds += _FOLLOW * (min(seconds, 4 * self._seconds) - self._seconds)

    def ran_here(self, size: int, seconds: float) -> None:
        """It ran on the event loop. What a run costs may depend on values, too: then others go to a thread."""
        self.saw(size, seconds)
        if seconds > _STRIKE_S:
            self._strikes += seconds / _STRIKE_S
            if self._strikes > _STRIKES:
                self._strikes = 0.0
                self._rests_until = perf_counter() + self._rest_s
                self._rest_s = min(2 * self._rest_s, _REST_S[1])
        elif self._strikes:
            self._strikes *= 0.99


def rows_of(feeds: Mapping[str, Array]) -> int:
    for array in feeds.values():
        return len(array) if array.ndim else 1
    return 1


def size_of(feeds: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in feeds.values())
