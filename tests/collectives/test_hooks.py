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
