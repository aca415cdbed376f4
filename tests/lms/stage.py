"""A simulated device to train on, and the comparison with a native step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from weft import lms
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.planning.plan import Plan

Forward = Callable[[nn.Module, Tensor], Tensor]


def squared(model: nn.Module, x: Tensor) -> Tensor:
    result: Tensor = model(x).square().mean()
    return result


def back(loss: Tensor, retain_graph: bool = False) -> None:
    """`backward`, which torch leaves without types."""
    torch.autograd.backward(loss, retain_graph=retain_graph)


@dataclass
class Stage:
    """One model and one batch, trained natively and within budgets."""

    model: nn.Module
    x: Tensor
    forward: Forward = squared
    seed: int = 3
    link: float = 1e9
    expected: list[Tensor | None] = field(init=False)
    native: Plan = field(init=False)

    def __post_init__(self) -> None:
        self.expected = self.step()
        self.native = self.within(1 << 26)

    def step(self) -> list[Tensor | None]:
        """Gradients of one native step."""
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(self.seed)  # dropout
        buffers = [buffer.clone() for buffer in self.model.buffers()]
        back(self.forward(self.model, self.x))
        with torch.no_grad():
            for buffer, before in zip(self.model.buffers(), buffers, strict=True):
                buffer.copy_(before)
        return [None if p.grad is None else p.grad.clone() for p in self.model.parameters()]

    def device(self, limit: int | None = None) -> SimulatedTransfer:
        transfer = SimulatedTransfer(limit=limit, link=self.link)
        transfer.adopt(*self.model.parameters(), *self.model.buffers(), self.x)
        return transfer

    def within(self, limit: int) -> Plan:
        """A step is recorded; gives its plan."""
        transfer = self.device()
        self.model.zero_grad(set_to_none=True)
        with lms.fit(limit, transfer=transfer):
            back(self.forward(self.model, self.x))
        self.model.zero_grad(set_to_none=True)
        return lms.plan()

    def budget(self, share: float) -> int:
        """Of what is between the least that any step needs and what the native one takes."""
        least = max(self.native.recording.other)
        return int(least + (self.native.native.peak - least) * share)

    def check(self, limit: int, steps: int = 4, hard: bool = True) -> SimulatedTransfer:
        """Gradients of several steps equal the native ones, bit for bit, on a device of `limit` bytes."""
        transfer = self.device(limit if hard else None)
        for index in range(steps):
            self.model.zero_grad(set_to_none=True)
            torch.manual_seed(self.seed)
            with lms.fit(limit, transfer=transfer):
                back(self.forward(self.model, self.x))
            assert_equal(self.model, self.expected, f"step {index}")
        self.model.zero_grad(set_to_none=True)
        return transfer


def assert_equal(model: nn.Module, expected: list[Tensor | None], when: str = "") -> None:
    for (name, parameter), gradient in zip(model.named_parameters(), expected, strict=True):
        if gradient is None:
            assert parameter.grad is None, name
        else:
            assert parameter.grad is not None, name
            assert torch.equal(parameter.grad, gradient), f"{name} {when}"
