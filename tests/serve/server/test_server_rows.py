"""Rows of different callers share a run only where no row changes the answer of another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from testing.serving import small_models
from testing.serving.server import Starter

from weft.serve.card import Card
from weft.serve.server.models.batch_limit import BatchLimit, batch_limit
from weft.serve.server.models.loading import load
from weft.serve.server.models.row_check import RowCheck, check_rows
from weft.serve.server.models.torch_runner import TorchRunner
from weft.serve.server.options import ModelOptions
from weft.serve.server.protocols.tensors import Array, TensorSpec


class Formula:
    """A runner that is a function of its first input."""

    platform = "fake"
    processor = "CPU"

    def __init__(
        self,
        formula: Callable[[Array], Array],
        given: TensorSpec | None = None,
        answer: str = "FP32",
        card: Card | None = None,
    ) -> None:
        self.inputs: tuple[TensorSpec, ...] = (given or TensorSpec("x", "FP32", (-1, 4)),)
        self.outputs: tuple[TensorSpec, ...] = (TensorSpec("y", answer, (-1, -1)),)
        self.card = card or Card()
        self._formula = formula

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        return [self._formula(feeds["x"])]


WEIGHTS = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
INDEPENDENT: dict[str, Callable[[Array], Array]] = {
    "times": lambda x: 2 * x,
    "product": lambda x: np.maximum(x @ WEIGHTS, 0),
    "each row by its own mean": lambda x: x - x.mean(1, keepdims=True),
    "branch of each row": lambda x: np.where(x.sum(1, keepdims=True) > 0, x, -x),
    "softmax": lambda x: np.exp(x - x.max(1, keepdims=True)),
    "not a number": lambda x: np.full_like(x, np.nan),
}
DEPENDENT: dict[str, Callable[[Array], Array]] = {
    "mean of the batch": lambda x: x - x.mean(0, keepdims=True),
    "largest of the batch": lambda x: x / np.abs(x).max(),
    "running sum": lambda x: np.cumsum(x, 0),
    "place in the batch": lambda x: x + np.arange(len(x), dtype=np.float32)[:, None],
    "sorted": lambda x: np.sort(x, 0),
    "branch of the batch": lambda x: x if x.sum() > 0 else 2 * x,
    "branch of a large value": lambda x: x if x.max() < 50 else 2 * x,
    "branch of the number of rows": lambda x: x if len(x) < 4 else 2 * x,
    "a neighbour's last digits": lambda x: x + 0.01 * np.roll(x, 1, 0),
    "one answer for all": lambda x: x.sum(0, keepdims=True),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_rows_that_do_not_see_each_other(name: str) -> None:
    assert check_rows(Formula(INDEPENDENT[name]), (8, 3, 2)).independent is True


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_see_each_other(name: str) -> None:
    found = check_rows(Formula(DEPENDENT[name]), (8, 3, 2))
    assert found.independent is False
    assert "'y'" in found.reason


def test_whole_numbers_words_and_free_sizes_are_drawn() -> None:
    def look_up(x: Array) -> Array:
        if x.max() > 5 or x.min() < 0:
            raise IndexError("there are six rows in the table")
        if x.shape[1] % 16:
            raise ValueError("rows must have a multiple of 16")
        return np.asarray(np.eye(6, dtype=np.float32)[x].sum(1))

    tokens = TensorSpec("x", "INT64", (-1, -1))
    assert check_rows(Formula(look_up, tokens), (3, 2)).independent is True
    words = TensorSpec("x", "BYTES", (-1, 2))
    assert check_rows(Formula(lambda x: x, words, "BYTES"), (3, 2)).independent is True
    flags = TensorSpec("x", "BOOL", (-1, 5))
    assert check_rows(Formula(lambda x: x ^ x[:1], flags, "BOOL"), (3, 2)).independent is False


def test_a_model_that_cannot_be_asked_is_not_judged() -> None:
    def refuse(x: Array) -> Array:
        raise RuntimeError("no")

    found = check_rows(Formula(refuse), (3, 2))
    assert found.independent is None
    assert "no" in found.reason


ALIKE, APART, UNKNOWN = RowCheck(True, "alike"), RowCheck(False, "apart"), RowCheck(None, "unknown")


@pytest.mark.parametrize(
    ("adapts", "is_torch", "check", "gain", "limit"),
    [
        (True, False, ALIKE, 3.0, BatchLimit(16, "alike")),
        (True, False, ALIKE, 1.0, BatchLimit(1, "batches would give 1.0 times the rows/s")),
        (True, False, APART, 3.0, BatchLimit(1, "apart")),
        (True, False, UNKNOWN, 3.0, BatchLimit(1, "unknown")),
        (
            True,
            True,
            None,
            3.0,
            BatchLimit(1, "a torch module is not batched unless --max-batch asks for it"),
        ),
        (False, True, ALIKE, 1.0, BatchLimit(16, "alike")),
        (False, True, APART, 3.0, BatchLimit(1, "apart")),
        (False, False, APART, 3.0, BatchLimit(1, "apart")),
        (False, False, UNKNOWN, 1.0, BatchLimit(16, "unknown")),
    ],
)
def test_how_many_rows_a_run_may_hold(
    adapts: bool, is_torch: bool, check: RowCheck | None, gain: float, limit: BatchLimit
) -> None:
    options = ModelOptions(adapts=adapts)
    assert batch_limit(options, free_rows=True, is_torch=is_torch, check=check, gain=gain) == limit
    assert batch_limit(options, free_rows=False, is_torch=is_torch, check=check, gain=gain).rows == 1


def test_equal_models_get_equal_batches_though_the_machine_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every third run of any size is held up for long; the decision is that of a quiet machine."""
    clock, runs = [0.0], [0]
    monkeypatch.setattr("weft.serve.server.models.loading.perf_counter", lambda: clock[0])

    def busy(x: Array) -> Array:
        runs[0] += 1
        clock[0] += 0.001 + 0.0001 * len(x) + (0.05 if runs[0] % 3 else 0.0)
        return x

    async def limits() -> list[int]:
        found = []
        for _ in range(5):
            model = load("m", "1", lambda _: Formula(busy), ModelOptions(adapts=True))()
            found.append(model.options.max_batch)
            model.retire()
        return found

    assert asyncio.run(limits()) == [16] * 5


def test_a_torch_module_with_a_branch_of_the_batch() -> None:
    import torch

    class Sign(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x) if x.sum() > 0 else -x

    async def limit(options: ModelOptions) -> tuple[int, str]:
        model = load("m", "1", lambda given: TorchRunner(Sign(), given), options)()
        model.retire()
        return model.options.max_batch, model.batch_reason

    threads = torch.get_num_threads()
    rows, reason = asyncio.run(limit(ModelOptions(device="cpu", threads=threads)))
    assert rows == 1
    assert "change each other's answers" in reason
    rows, reason = asyncio.run(limit(ModelOptions(device="cpu", threads=threads, adapts=True)))
    assert rows == 1
    assert "--max-batch" in reason


def centred(path: Path) -> Path:
    """y = x minus the mean of the batch."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    x, y = small_models.tensor("x", ["batch", 4]), small_models.tensor("y", ["batch", 4])
    return small_models.save(path, helper.make_graph(nodes, "centred", [x], [y]))


def test_callers_of_a_model_whose_rows_see_each_other_get_their_own_answers(
    start: Starter, tmp_path: Path, onnx_models: Path
) -> None:
    """Asked for batches and for waiting: no batch is made where answers would differ, and the server says so."""
    model, double = str(centred(tmp_path / "centred.onnx")), str(onnx_models / "double.onnx")
    server = start(model, double, "--max-batch", "16", "--delay-ms", "20")
    with server.client() as client:

        def ask(value: int) -> Any:
            return client.infer("centred", {"x": np.full((1, 4), value, np.float32)})["y"].tolist()

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(-40, 40)))
        client.close()
        told = client.metadata("centred")["parameters"]["batching"]
        assert client.metadata("double")["parameters"]["batching"]["max_batch"] == 16
    assert answers == [[[0, 0, 0, 0]]] * 80
    assert told["max_batch"] == 1
    assert "change each other's answers" in told["reason"]
    assert server.call("GET", "/v2/models/centred/config").json()["max_batch_size"] == 0
    assert server.logged(event="loaded", model="centred")["max_batch"] == 1
