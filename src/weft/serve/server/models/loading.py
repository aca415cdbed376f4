"""From a build to a model that is warm: replicas, their threads, and whether rows of requests may share a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

import numpy as np

from weft.errors import ModelError
from weft.serve.server.models.batch_limit import BatchLimit, batch_limit, may_batch
from weft.serve.server.models.model import QUICK_S, Model, Pace, size_of
from weft.serve.server.models.onnx_runner import Runner, splits_by_rows
from weft.serve.server.models.queue import Feeds
from weft.serve.server.models.row_check import RowCheck, check_rows
from weft.serve.server.models.tally import Tally
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocols.tensors import NUMPY

Build = Callable[[ModelOptions], Runner]

# Runs of one row and of a full batch take turns, and the shortest of each count: a busy moment hits both.
_ROUNDS = (3, 20)  # turns at least, and at most
_MEASURE_S = 0.5  # no further turn is begun after so long
_SLOW_S = 0.1  # a model whose row takes longer is compared on fewer rows


@dataclass(frozen=True)
class Seen:
    """The timings of a warm-up: the shortest run of one row, and of a batch of several."""

    one_s: float = float("inf")
    size: int = 0  # bytes of one row
    rows: int = 1
    many_s: float = float("inf")

    @property
    def gain(self) -> float:
        """Rows/s of the batch against those of single rows."""
        return self.one_s * self.rows / self.many_s if self.rows > 1 and self.many_s else 1.0


class MakeModel(Protocol):
    """Makes a model that is loaded; its figures are added to those of the same version before."""

    def __call__(self, tally: Tally | None = None) -> Model: ...


def load(name: str, version: str, build: Build, options: ModelOptions) -> MakeModel:
    """Make the replicas and warm them up; what comes back makes the model, on the event loop."""
    runners = [build(options)]
    seen = warm_up(name, runners[0], options)
    if seen.one_s < QUICK_S and options.share() > 1 and not options.threads:
        # So short a run gains nothing from more threads, and loses what it takes to wake them.
        options = replace(options, threads=1)
        runners = [build(options)]
        seen = warm_up(name, runners[0], options)
    limit = _limit(runners[0], options, seen)
    options = replace(options, max_batch=limit.rows)
    for _ in range(1, options.replicas):
        runners.append(build(options))
        warm_up(name, runners[-1], options)
    pace = Pace()
    if seen.size:
        pace.saw(seen.size, seen.one_s)
    return lambda tally=None: Model(name, version, runners, options, pace, limit.reason, tally)


def _limit(runner: Runner, options: ModelOptions, seen: Seen) -> BatchLimit:
    free_rows, is_torch = splits_by_rows(runner), runner.platform == "pytorch_module"
    check: RowCheck | None = None
    if may_batch(options, free_rows=free_rows, is_torch=is_torch):
        most = options.max_batch
        check = check_rows(runner, (3, 2) if seen.one_s > _SLOW_S else (min(most, 8), 3, 2))
    return batch_limit(options, free_rows=free_rows, is_torch=is_torch, check=check, gain=seen.gain)


def warm_up(name: str, runner: Runner, options: ModelOptions) -> Seen:
    """Run it a few times: the first runs allocate and compile, and a broken model shows at once."""
    row, guessed = sample(runner, 1)
    batched = splits_by_rows(runner) and options.max_batch > 1
    rows = options.max_batch if batched else 1
    many = sample(runner, rows)[0] if batched else {}
    try:
        runner.run(row)
        one_s, many_s = _take_turns(runner, row, many)
    except Exception as error:
        if guessed:
            return Seen()  # we made its sizes up; a real request knows better
        raise ModelError(f"{name} must run on zeros of its own shapes, got: {error}") from error
    return Seen(one_s, size_of(row), rows, many_s)


def _take_turns(runner: Runner, row: Feeds, many: Feeds) -> tuple[float, float]:
    """Return the shortest times of one row and of a batch; where there is no batch, infinity in its place."""
    one_s = many_s = float("inf")
    least, most = _ROUNDS
    began = perf_counter()
    for turn in range(most):
        one_s = min(one_s, _timed(runner, row))
        if many:
            many_s = min(many_s, _timed(runner, many))
        if turn + 1 >= least and perf_counter() - began > _MEASURE_S:
            break
    return one_s, many_s


def _timed(runner: Runner, feeds: Feeds) -> float:
    began = perf_counter()
    runner.run(feeds)
    return perf_counter() - began


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
