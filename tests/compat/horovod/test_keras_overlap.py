"""Gradients in buckets: what travels, when, and what is averaged anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from weft.keras.overlap import GradientBuckets, OverlappedAverage


class Halves:
    """Stands for two workers whose other one has gradients of zero: averages are halves, there when waited for."""

    def __init__(self) -> None:
        self.begun: list[int] = []  # elements of each bucket, in the order in which they travelled
        self.at_once: list[int] = []  # gradients of each average that did not overlap

    def start(self, flat: Tensor) -> Any:
        self.begun.append(flat.numel())

        class Pending:
            def wait(self) -> None:
                flat.mul_(0.5)

        return Pending()

    def average(self, grads: list[Tensor]) -> list[Tensor]:
        self.at_once.append(len(grads))
        return [grad * 0.5 for grad in grads]


class Variable:
    def __init__(self, value: Tensor) -> None:
        self.value = value


def three() -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.ones(size)) for size in (1, 2, 3)]


def backward(parameters: list[torch.nn.Parameter], used: tuple[int, ...] = (0, 1, 2)) -> list[Tensor | None]:
    for parameter in parameters:
        parameter.grad = None
    sum((place + 1) * parameters[place].sum() for place in used).backward()  # type: ignore[union-attr]
    return [parameter.grad for parameter in parameters]


def values(grads: list[Any]) -> list[list[float] | None]:
    return [None if grad is None else grad.tolist() for grad in grads]


HALVED = [[0.5], [1.0, 1.0], [1.5, 1.5, 1.5]]


def test_whole_buckets_travel_during_the_backward_pass_the_last_first() -> None:
    parameters, workers = three(), Halves()
    buckets = GradientBuckets(parameters, workers.start, bucket_bytes=12)
    buckets.armed = True
    for _ in range(2):
        grads = backward(parameters)
        assert workers.begun == [3, 3]
        assert values(buckets.finish(grads, workers.average)) == HALVED
        workers.begun.clear()
    assert workers.at_once == []


def test_nothing_travels_outside_of_batches() -> None:
    parameters, workers = three(), Halves()
    average = OverlappedAverage(workers.start, workers.average)
    variables = [Variable(parameter) for parameter in parameters]
    average.batch_begins()
    assert (
        values(average.reduce(backward(parameters), variables)) == HALVED
    )  # the first step makes the buckets
    average.batch_ends()
    assert values(average.reduce(backward(parameters), variables)) == HALVED
    assert (workers.begun, workers.at_once) == ([], [3, 3])
    average.batch_begins()
    assert values(average.reduce(backward(parameters), variables)) == HALVED
    average.batch_ends()
    assert (workers.begun, workers.at_once) == ([6], [3, 3])


def test_a_parameter_without_gradient_leaves_its_bucket_for_the_end() -> None:
    parameters, workers = three(), Halves()
    buckets = GradientBuckets(parameters, workers.start, bucket_bytes=12)
    buckets.armed = True
    made = buckets.finish(backward(parameters, used=(0, 2)), workers.average)
    assert values(made) == [[0.5], None, [1.5, 1.5, 1.5]]
    assert (workers.begun, workers.at_once) == ([3], [1])


@pytest.mark.parametrize("change", ["again", "in place", "replaced"])
def test_gradients_that_change_after_they_travelled_are_averaged_anew(change: str) -> None:
    parameters, workers = three(), Halves()
    buckets = GradientBuckets(parameters, workers.start, bucket_bytes=12)
    buckets.armed = True
    grads = backward(parameters)
    if change == "again":
        sum(parameter.sum() for parameter in parameters).backward()  # type: ignore[union-attr]
        expected = [[1.0], [1.5, 1.5], [2.0, 2.0, 2.0]]
    elif change == "in place":
        torch.nn.utils.clip_grad_value_(parameters, 2.0)
        expected = [[0.5], [1.0, 1.0], [1.0, 1.0, 1.0]]
    else:
        grads = [grad * 2 for grad in grads if grad is not None]
        expected = [[1.0], [2.0, 2.0], [3.0, 3.0, 3.0]]
    assert values(buckets.finish(grads, workers.average)) == expected
    assert workers.at_once == [3]
    grads = backward(parameters)
    assert values(buckets.finish(grads, workers.average)) == HALVED  # the next step is as any other
    assert workers.at_once == [3]


def test_types_and_other_parameters_have_buckets_of_their_own() -> None:
    parameters, workers = three(), Halves()
    parameters[1] = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    buckets = GradientBuckets(parameters, workers.start)
    buckets.armed = True
    assert values(buckets.finish(backward(parameters), workers.average)) == HALVED
    assert sorted(workers.begun) == [2, 4]
    assert not buckets.serves(three())
    average = OverlappedAverage(workers.start, workers.average)
    average.reduce(backward(parameters), [Variable(one) for one in parameters])
    others = three()
    assert values(average.reduce(backward(others), [Variable(one) for one in others])) == HALVED
