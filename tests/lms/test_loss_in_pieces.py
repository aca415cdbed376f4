"""A loss over a large vocabulary that would break the budget by itself is computed a few rows at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.lms.stage import back
from torch import Tensor, nn

from weft import lms
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.loss_pieces import in_pieces, rows_at_once

SETTINGS: list[dict[str, Any]] = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"ignore_index": 3},
    {"weight": torch.linspace(0.5, 2.0, 50)},
    {"weight": torch.linspace(0.5, 2.0, 50), "ignore_index": 3, "reduction": "sum"},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.1, "ignore_index": 3, "reduction": "none"},
    {"label_smoothing": 0.3, "ignore_index": 3, "weight": torch.linspace(0.5, 2.0, 50)},
    {"label_smoothing": 1.0, "reduction": "sum"},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_are_those_of_the_whole_loss(settings: dict[str, Any], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    logits, target = torch.randn(37, 50, dtype=dtype), torch.randint(50, (37,))
    settings = {name: value.to(dtype) if name == "weight" else value for name, value in settings.items()}
    pieced = in_pieces(nn.functional.cross_entropy, lambda *_: 8)
    found = []
    for loss_of in (nn.functional.cross_entropy, pieced):
        given = logits.clone().requires_grad_()
        loss = loss_of(given, target, **settings)
        loss.sum().backward()  # type: ignore[no-untyped-call]
        assert given.grad is not None
        found.append((loss.detach(), given.grad))
    (whole, expected), (loss, gradient) = found
    torch.testing.assert_close(loss, whole)
    torch.testing.assert_close(gradient, expected, rtol=1e-6 if dtype == torch.float32 else 8e-3, atol=1e-8)


def test_what_is_not_large_or_not_plain_is_left_to_torch() -> None:
    assert rows_at_once(torch.empty(64, 100), 4, limit=1 << 20, share=0.5, piece_shift=6) is None
    assert rows_at_once(torch.empty(6400, 100), 4, limit=1 << 20, share=0.5, piece_shift=6) == 40
    asked: list[Tensor] = []
    loss_of = in_pieces(nn.functional.cross_entropy, lambda logits, _: asked.append(logits))
    logits = torch.randn(4, 5, requires_grad=True)
    loss_of(logits, torch.randn(4, 5).softmax(1))
    loss_of(torch.randn(2, 5, 3, requires_grad=True), torch.randint(5, (2, 3)))
    loss_of(logits.detach(), torch.randint(5, (4,)))
    assert not asked


def test_a_loss_that_alone_breaks_the_budget_is_trained_within_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2000))
    x, target = torch.randn(256, 16), torch.randint(2000, (256,))
    back(nn.functional.cross_entropy(model(x), target))
    expected = [parameter.grad for parameter in model.parameters()]
    logits_bytes = 256 * 2000 * 4
    limit = int(
        2.7 * logits_bytes
    )  # the logits, their gradient, and little else; natively it takes four of them
    transfer = SimulatedTransfer(limit=limit)
    transfer.adopt(*model.parameters(), x, target)
    original = nn.functional.cross_entropy
    for _ in range(4):
        model.zero_grad(set_to_none=True)
        with lms.fit(limit, transfer=transfer):
            back(nn.functional.cross_entropy(model(x), target))
        for parameter, gradient in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-9)
    assert lms.stats()["over"] == 0
    assert nn.functional.cross_entropy is original
