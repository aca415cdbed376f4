"""Every sample once an epoch, in an order that looks random and depends on nothing but seed and epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.elastic.data.order import SampleOrder, TrainingStep, shuffled
from weft.errors import UsageError


@pytest.mark.long
@given(
    st.integers(1, 3000), st.integers(1, 200), st.integers(1, 64), st.integers(0, 2**40), st.integers(0, 9)
)
@settings(max_examples=60)
def test_an_epoch_has_every_sample_once(length: int, batch: int, micro: int, seed: int, epoch: int) -> None:
    order = SampleOrder(length, batch, micro, seed)
    steps = [order.step(epoch * order.steps_per_epoch + index) for index in range(order.steps_per_epoch)]
    seen = [
        sample for step in steps for part in range(order.micros(step)) for sample in order.samples(step, part)
    ]
    assert sorted(seen) == list(range(length))
    assert {step.epoch for step in steps} == {epoch}


def test_micro_batches_are_the_step_in_pieces() -> None:
    order = SampleOrder(100, 30, 8)
    step = order.step(3)  # the last and smaller one
    assert step == TrainingStep(3, 0, 90, 100)
    pieces = [order.samples(step, index) for index in range(order.micros(step))]
    assert [len(piece) for piece in pieces] == [order.micro_size(step, index) for index in (0, 1)] == [8, 2]
    assert np.array_equal(np.concatenate(pieces), order.samples(step))


def test_the_last_batch_may_be_dropped() -> None:
    assert SampleOrder(100, 30, 8, drop_last=True).steps_per_epoch == 3
    assert SampleOrder(100, 30, 8, drop_last=True).step(3) == TrainingStep(3, 1, 0, 30)
    assert SampleOrder(90, 30, 8).steps_per_epoch == 3


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = {
        (seed, epoch): tuple(shuffled(np.arange(1000), 1000, seed, epoch))
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(set(orders.values())) == 9
    assert tuple(shuffled(np.arange(1000), 1000, 1, 1)) == orders[1, 1]


def test_the_order_stays_the_same_from_release_to_release() -> None:
    """Runs resume: a changed order would lose samples."""
    assert shuffled(np.arange(8), 8, 0, 0).tolist() == [2, 5, 6, 7, 1, 3, 4, 0]
    assert SampleOrder(1437, 64, 8).digest(SampleOrder(1437, 64, 8).step(40)) == "1bda0182"


def test_the_order_looks_random() -> None:
    length = 5000
    order = shuffled(np.arange(length), length, 7, 0).astype(float)
    steps = np.diff(order)
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 0.05
    assert abs(np.corrcoef(np.arange(length), order)[0, 1]) < 0.05
    assert len(np.unique(steps)) > length / 2  # a linear congruence would repeat its strides
    # Where a sample stands in one epoch says nothing about where it stands in the next.
    assert abs(np.corrcoef(order, shuffled(np.arange(length), length, 7, 1))[0, 1]) < 0.05


def test_without_shuffling_samples_come_as_they_are() -> None:
    order = SampleOrder(10, 4, 2, shuffle=False)
    assert order.samples(order.step(1)).tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize(("length", "batch", "micro"), [(0, 1, 1), (5, 0, 1), (5, 1, 0)])
def test_what_cannot_be_cut_is_refused(length: int, batch: int, micro: int) -> None:
    with pytest.raises(UsageError, match="must"):
        SampleOrder(length, batch, micro)


def test_a_batch_larger_than_the_data_is_refused_only_if_the_rest_is_dropped() -> None:
    assert SampleOrder(5, 8, 2).steps_per_epoch == 1
    with pytest.raises(UsageError, match="drop_last=False"):
        SampleOrder(5, 8, 2, drop_last=True)
