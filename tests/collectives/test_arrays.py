"""Collectives for NumPy arrays and tensors, on real ranks."""

from __future__ import annotations

import numpy as np
import pytest
from tests.collectives.conftest import Bench

import weft
from weft.errors import UsageError


@pytest.mark.parametrize(("backend", "workers"), [("weft", 3), ("gloo", 2), ("weft", 1)])
def test_arrays_and_tensors_come_back_as_what_they_were(bench: Bench, backend: str, workers: int) -> None:
    assert bench.passes("arrays.py", workers, backend).count("as it should be") == workers


@pytest.mark.parametrize(
    "name", ["allgather", "allreduce", "alltoall", "broadcast", "reduce_scatter", "allreduce_n"]
)
def test_before_init_it_is_said_what_to_do(name: str) -> None:
    with pytest.raises(UsageError, match=rf"weft.{name} must come after weft.init\(\)"):
        getattr(weft, name)(np.ones(3))


def test_nobody_waits_for_a_world_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"weft.barrier must come after weft.init\(\)"):
        weft.barrier()
