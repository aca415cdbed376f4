"""When a batch starts, who is in it, and what a queue does with requests that cannot wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.serve.card import Card
from weft.serve.server.models.batching import Batch, Hold, next_batch
from weft.serve.server.models.loading import load
from weft.serve.server.models.model import Model, Pace
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocols.tensors import Array, TensorSpec
from weft.serve.server.refusal import RefusalError


@dataclass(frozen=True)
class Waits:
    rows: int = 1
    kind: str = "a"
    since: float = 0.0


def test_without_a_bound_whoever_is_there_starts() -> None:
    assert next_batch([Waits(), Waits()], 0.0, 16, 0.0) == Batch((0, 1), 2)


def test_with_a_bound_the_oldest_waits_for_company_until_it_is_over() -> None:
    queue = [Waits(since=1.0), Waits(since=1.5)]
    assert next_batch(queue, 1.9, 16, 1.0) == Hold(2.0)
    assert next_batch(queue, 2.0, 16, 1.0) == Batch((0, 1), 2)


def test_a_full_batch_waits_for_nobody() -> None:
    assert next_batch([Waits(2), Waits(2), Waits(2)], 0.0, 4, 9.0) == Batch((0, 1), 4)


def test_only_one_kind_shares_a_batch_and_others_are_not_forgotten() -> None:
    queue = [Waits(kind="a"), Waits(kind="b"), Waits(kind="a")]
    assert next_batch(queue, 0.0, 16, 0.0) == Batch((0, 2), 2)


def test_a_request_larger_than_a_batch_goes_alone() -> None:
    assert next_batch([Waits(40), Waits(1)], 0.0, 16, 5.0) == Batch((0,), 40)


def test_nobody_there() -> None:
    assert next_batch([], 0.0, 16, 0.0) is None


waits = st.builds(Waits, st.integers(1, 20), st.sampled_from("ab"), st.floats(0, 10))


@given(st.lists(waits, min_size=1), st.floats(0, 20), st.integers(1, 32), st.floats(0, 5))
def test_batches_keep_their_laws(queue: list[Waits], now: float, most: int, delay: float) -> None:
    decided = next_batch(queue, now, most, delay)
    if isinstance(decided, Hold):
        assert now < decided.until == queue[0].since + delay
        return
    assert decided is not None
    chosen = [queue[place] for place in decided.places]
    assert decided.places[0] == 0  # the oldest is never left behind
    assert {one.kind for one in chosen} == {queue[0].kind}
    assert decided.rows == sum(one.rows for one in chosen)
    assert decided.rows <= most or len(chosen) == 1


class Gate:
    """A runner that waits to be let go, and counts the rows of each run; it refuses rows that begin with -1."""

    inputs: tuple[TensorSpec, ...] = (TensorSpec("x", "FP32", (-1, 2)),)
    outputs: tuple[TensorSpec, ...] = (TensorSpec("y", "FP32", (-1, 2)),)
    card = Card()
    platform = "fake"
    processor = "CPU"

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.runs: list[int] = []

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        self.entered.release()
        assert self.go.acquire(timeout=120)
        x = feeds["x"]
        self.runs.append(len(x))
        if (x[:, 0] == -1).any():
            raise RefusalError(400, "the model refused its inputs")
        return [2 * x]


def row(value: float = 1.0, rows: int = 1) -> dict[str, Array]:
    return {"x": np.full((rows, 2), value, np.float32)}


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def model(gate: Gate, replicas: int = 1, **options: Any) -> Model:
    gates: list[Any] = [gate] * replicas
    return Model("m", "1", gates, ModelOptions(replicas=replicas, **options), Pace())


async def entered(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.entered.acquire, True, 30)


def submit(
    served: Model, feeds: dict[str, Array], timeout_s: float | None = None
) -> asyncio.Future[list[Array]]:
    found = served.start(feeds, timeout_s)
    assert not isinstance(found, list)
    return found


def test_what_gathers_while_a_replica_is_busy_leaves_as_one_batch() -> None:
    async def work() -> None:
        gate = Gate()
        served = model(gate)
        first = submit(served, row())
        await entered(gate)
        others = [submit(served, row(value, rows=2)) for value in (2, 3, 4)]
        gate.go.release(2)
        np.testing.assert_array_equal((await first)[0], row(2)["x"])
        for value, answer in zip((4, 6, 8), await asyncio.gather(*others), strict=True):
            np.testing.assert_array_equal(answer[0], row(value, rows=2)["x"])
        assert gate.runs == [1, 6]
        assert served.tally.batches.keys() == {1, 6}
        served.retire()

    run(work())


def test_one_bad_request_does_not_spoil_its_batch() -> None:
    async def work() -> None:
        gate = Gate()
        served = model(gate)
        first = submit(served, row())
        await entered(gate)
        good, bad = submit(served, row(3)), submit(served, row(-1))
        gate.go.release(10)
        await first
        np.testing.assert_array_equal((await good)[0], row(6)["x"])
        with pytest.raises(RefusalError, match="refused its inputs"):
            await bad
        assert gate.runs == [1, 2, 1, 1]  # together, then each by itself
        served.retire()

    run(work())


def test_a_full_queue_is_429_and_an_expired_request_is_not_computed() -> None:
    async def work() -> None:
        gate = Gate()
        served = model(gate, queue=1, max_batch=1)
        first = submit(served, row())
        await entered(gate)
        late = submit(served, row(), timeout_s=0.01)
        with pytest.raises(RefusalError) as full:
            submit(served, row())
        assert full.value.status == 429
        with pytest.raises(RefusalError) as expired:
            await late
        assert expired.value.status == 504
        after = submit(served, row())  # the place of the one that expired
        gate.go.release(2)
        await asyncio.gather(first, after)
        assert gate.runs == [1, 1]
        served.retire()

    run(work())


def test_a_request_whose_client_leaves_is_not_computed() -> None:
    async def work() -> None:
        gate = Gate()
        served = model(gate, max_batch=1)
        first = submit(served, row())
        await entered(gate)
        gone = submit(served, row())
        gone.cancel()
        gate.go.release(5)
        await first
        await served.drained()
        assert gate.runs == [1]
        assert served.tally.cancelled == 1
        served.retire()

    run(work())


def test_replicas_run_side_by_side() -> None:
    async def work() -> None:
        gate = Gate()
        served = model(gate, replicas=2, max_batch=1)
        both = [submit(served, row()), submit(served, row())]
        await entered(gate)
        await entered(gate)  # the second began though the first has not ended
        gate.go.release(2)
        await asyncio.gather(*both)
        served.retire()

    run(work())


def test_a_retired_model_answers_what_it_has_taken() -> None:
    async def work() -> None:
        gate = Gate()
        served = model(gate)
        with served.held():
            served.retire()
            taken = submit(served, row())
            gate.go.release()
            np.testing.assert_array_equal((await taken)[0], row(2)["x"])

    run(work())


class Weigh:
    """A runner whose batches take as long as told, by its own clock."""

    inputs = Gate.inputs
    outputs = Gate.outputs
    card = Card()
    platform = "fake"
    processor = "CPU"

    def __init__(self, clock: list[float], row_s: float, run_s: float) -> None:
        self._clock, self._row_s, self._run_s = clock, row_s, run_s

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        self._clock[0] += self._run_s + self._row_s * len(feeds["x"])
        return [feeds["x"]]


@pytest.mark.parametrize(
    ("row_s", "run_s", "adapts", "limit"),
    [(0.01, 0.0, True, 1), (0.001, 0.01, True, 16), (0.01, 0.0, False, 16)],
)
def test_batches_only_where_they_pay(
    row_s: float, run_s: float, adapts: bool, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("weft.serve.server.models.loading.perf_counter", lambda: clock[0])

    async def work() -> None:
        options = ModelOptions(adapts=adapts)
        served = load("m", "1", lambda _: Weigh(clock, row_s, run_s), options)()
        assert served.options.max_batch == limit
        assert served.batches == (limit > 1)
        served.retire()

    run(work())


def test_short_runs_stay_on_the_event_loop_and_long_ones_do_not() -> None:
    pace = Pace()
    small, large = 100, 10_000
    assert not pace.quick(small)  # not known yet
    pace.saw(small, 0.0001)
    assert pace.quick(small)
    assert not pace.quick(large)
    pace.ran_here(small, 0.02)  # once may be chance
    assert pace.quick(small)
    for _ in range(3):
        pace.ran_here(small, 0.02)  # it holds everybody up, and rests
    assert not pace.quick(small)
    pace = Pace()
    pace.saw(small, 0.0001)
    for _ in range(200):
        pace.saw(small, 0.01)
    assert not pace.quick(small)
