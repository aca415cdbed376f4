"""Light gradients in DDP without NCCL."""

from __future__ import annotations

import pytest
from tests.collectives.conftest import Bench


@pytest.mark.parametrize(("backend", "workers"), [("gloo", 2), ("weft", 3)])
def test_training_with_light_gradients_goes_as_with_whole_ones(
    bench: Bench, backend: str, workers: int
) -> None:
    said = bench.passes("light_training.py", workers, backend)
    assert said.count("as it should be") == workers, said


@pytest.mark.parametrize("hook", ["bf16", "int8"])
def test_a_script_may_end_while_the_thread_that_averaged_is_busy(bench: Bench, hook: str) -> None:
    said = bench.passes("hooks_end.py", 2, hook)
    assert said.count("as it should be") == 2, said
