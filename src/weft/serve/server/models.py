"""One version of a model at work: its replicas, its queue, its figures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, time

import numpy as np

from weft.errors import ModelError
from weft.serve.card import Card
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocol import check_feeds
from weft.serve.server.queueing import Feeds, Queue
from weft.serve.server.refusal import RefusalError
from weft.serve.server.sessions import Runner
from weft.serve.server.tally import Tally
from weft.serve.server.tensors import NUMPY, Array, TensorSpec

# A run this short costs less than the way to a thread and back, so it is done on the event loop.
QUICK_S = 0.0004
_STRIKE_S = (
    0.01  # one this long, when a short one was expected, held everybody up: the next ones go to a thread
)
_REST_S = (1.0, 300.0)  # for so long, twice as long each time
_FOLLOW = 0.05  # how fast the estimate of a run's time follows what is seen

Build = Callable[[ModelOptions], Runner]


class Model:
    """A version that is loaded. Made on the event loop from runners that are warm."""

    def __init__(
        self, name: str, version: str, runners: list[Runner], options: ModelOptions, pace: Pace
    ) -> None:
        first = runners[0]
        self.name = name
        self.version = version
        self.options = options
        self.card: Card = first.card
        self.platform = first.platform
        self.inputs = {spec.name: spec for spec in first.inputs}
        self.outputs = first.outputs
        self.output_names = [spec.name for spec in first.outputs]
        self.batches = options.max_batch > 1 and splits_by_rows(first)
        self.tally = Tally()
        self.queue = Queue(runners, options, self.tally, pace.saw)
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
        if self._inline and self._pace.quick(feeds) and (runner := self.queue.spare()) is not None:
            began = perf_counter()
            results = runner.run(feeds)
            took = perf_counter() - began
            self._pace.saw(feeds, took)
            self._pace.held_up(took)
            self.tally.waiting.add(0.0)
            self.tally.ran(rows_of(feeds), took)
            return results
        rows, kind = rows_of(feeds), self._kind(feeds)
        return self.queue.submit(feeds, rows, kind, min(timeout_s or 1e9, self.options.timeout_s))

    async def infer(self, feeds: Feeds, timeout_s: float | None = None) -> dict[str, Array]:
        """Outputs by name, counted; for doors that have no need to be quick."""
        began = perf_counter()
        try:
            found = self.start(feeds, timeout_s)
            results = found if isinstance(found, list) else await found
        except RefusalError as error:
            self.tally.failed(error.status, perf_counter() - began)
            raise
        self.answered(began)
        return dict(zip(self.output_names, results, strict=True))

    def answered(self, began: float) -> None:
        self.tally.answered(perf_counter() - began)
        self.tally.last_ms = int(time() * 1000)

    def choose(self, outputs: tuple[str, ...], results: list[Array]) -> list[tuple[str, Array]]:
        """The outputs that a request wants, by name."""
        if not outputs:
            return list(zip(self.output_names, results, strict=True))
        known = dict(zip(self.output_names, results, strict=True))
        return [(name, known[name]) for name in outputs]

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
    """How long a run takes, for inputs of a size: an estimate that follows what is seen."""

    def __init__(self) -> None:
        self._bytes = 1
        self._seconds = float("inf")
        self._rest_s, self._rests_until = _REST_S[0], 0.0

    def quick(self, feeds: Mapping[str, Array]) -> bool:
        if self._seconds > QUICK_S or self._seconds * self._scale(feeds) > QUICK_S:
            return False
        return not self._rests_until or perf_counter() > self._rests_until

    def held_up(self, seconds: float) -> None:
        """Told how long a run on the event loop took: what a run costs may depend on values, too."""
        if seconds > _STRIKE_S:
            self._rests_until = perf_counter() + self._rest_s
            self._rest_s = min(2 * self._rest_s, _REST_S[1])

    def saw(self, feeds: Mapping[str, Array], seconds: float) -> None:
        if self._seconds == float("inf"):
            self._bytes = max(1, _bytes(feeds))
            self._seconds = seconds
            return
        # One run that the machine interrupted must not count for more than a few times what is usual.
        seen = min(seconds / self._scale(feeds), 4 * self._seconds)
        self._seconds += _FOLLOW * (seen - self._seconds)

    def _scale(self, feeds: Mapping[str, Array]) -> float:
        return max(1.0, _bytes(feeds) / self._bytes)


def load(name: str, version: str, build: Build, options: ModelOptions) -> Callable[[], Model]:
    """Make the replicas and warm them up; what comes back makes the model, on the event loop."""
    runners = [build(options) for _ in range(options.replicas)]
    pace = Pace()
    for runner in runners:
        warm_up(name, runner, options, pace)
    return lambda: Model(name, version, runners, options, pace)


def warm_up(name: str, runner: Runner, options: ModelOptions, pace: Pace) -> None:
    """Run it a few times: the first runs allocate and compile, and a broken model shows at once."""
    rows = [1, 1, 1, 1]
    if splits_by_rows(runner) and options.max_batch > 1:
        rows = [options.max_batch, *rows]
    for place, count in enumerate(rows):
        feeds, guessed = sample(runner, count)
        began = perf_counter()
        try:
            runner.run(feeds)
        except Exception as error:
            if guessed:
                return  # we made its sizes up; a real request knows better
            raise ModelError(f"{name} must run on zeros of its own shapes, got: {error}") from error
        if place == len(rows) - 1:
            pace.saw(feeds, perf_counter() - began)


def sample(runner: Runner, rows: int) -> tuple[Feeds, bool]:
    """Zeros as a model takes them; True if some of the sizes had to be made up."""
    picture = runner.card.picture
    guessed = False
    feeds: Feeds = {}
    for spec in runner.inputs:
        shape = list(spec.shape)
        if shape and shape[0] == -1:
            shape[0] = rows
        if picture is not None and len(shape) == 4:
            high = 2 if picture.layout == "NCHW" else 1
            shape[high : high + 2] = [picture.height, picture.width]
        guessed = guessed or -1 in shape
        kind = NUMPY[spec.datatype]
        size = [1 if side == -1 else side for side in shape]
        feeds[spec.name] = np.full(size, "", kind) if kind.kind == "O" else np.zeros(size, kind)
    return feeds, guessed


def splits_by_rows(runner: Runner) -> bool:
    """Whether requests may share a run: the first size of every input and output is free."""
    tensors: tuple[TensorSpec, ...] = (*runner.inputs, *runner.outputs)
    return all(spec.shape and spec.shape[0] == -1 for spec in tensors)


def rows_of(feeds: Mapping[str, Array]) -> int:
    for array in feeds.values():
        return len(array) if array.ndim else 1
    return 1


def _bytes(feeds: Mapping[str, Array]) -> int:
    return sum(array.nbytes for array in feeds.values())
