"""The seam between the engine and a device: how much memory it uses, and copies that run beside its compute."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from weft.errors import UsageError
from weft.lms.device.slabs import Block
from weft.lms.plan.recording import Rates


class Transfer(Protocol):
    """One device and its link to the host.

    No call blocks the thread that launches work, `seconds` apart. Copies in one direction run in the order of calls.
    A source must stay alive until `wait` was called for its copy; a target must not be read before that.
    """

    device: torch.device
    host_limit: int  # bytes of host memory that copies may take

    def watching(self) -> AbstractContextManager[object]:
        """Around the steps that are to be measured and bounded."""
        ...

    def allocated(self) -> int:
        """Bytes in use on the device."""
        ...

    def peak(self) -> int:
        """The most bytes in use since `reset_peak`."""
        ...

    def levels(self) -> tuple[int, int]:
        """Both, at the price of one."""
        ...

    def reset_peak(self) -> None: ...

    def capacity(self) -> int:
        """Bytes this process could use: those in use and those free."""
        ...

    def rates(self) -> Rates:
        """Measured when first asked for."""
        ...

    def mark(self) -> Any:
        """A point in the compute's order."""
        ...

    def busy(self, seconds: float = ...) -> None:
        """Keep the device busy for a moment, so that marks that follow time the work and not its launching."""
        ...

    def passed(self, mark: Any) -> bool:
        """Whether the compute has come to a mark."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Between two marks; waits for the later one."""
        ...

    def stream(self) -> Any:
        """What the compute runs on now; memory that it allocates is its own."""
        ...

    def host(self, size: int) -> Block:
        """Host memory for a copy; BudgetError when the host's limit is reached."""
        ...

    def give_back(self, block: Block) -> None: ...

    def give_back_later(self, block: Block) -> None:
        """The same, from any thread and at any moment: when something dies."""
        ...

    def copy_out(self, source: torch.Tensor, block: Block) -> Any:
        """Start a copy of a flat tensor to the host, after the compute so far; gives a ticket."""
        ...

    def copy_in(self, block: Block, target: torch.Tensor) -> Any:
        """Start a copy back, after the compute so far and after the copy out of the same block."""
        ...

    def wait(self, ticket: Any, stream: Any = None) -> None:
        """Let the compute, on this stream or on the current one, wait for a copy."""
        ...

    def settle(self) -> None:
        """Wait for all copies; for ends and errors."""
        ...

    def pinned(self) -> tuple[int, int]:
        """Bytes of host memory held, and in use."""
        ...


def transfer_for(device: torch.device, host: int | None) -> Transfer:
    """The transfer that serves a device."""
    if device.type == "cuda":
        from weft.lms.device.cuda import CudaTransfer

        return CudaTransfer(device, host)
    raise UsageError(
        f"large model support must have a CUDA device, got {device.type}; on this machine leave it out, or give "
        "transfer=weft.lms.device.simulated.SimulatedTransfer() to try it without one"
    )


def current_device() -> torch.device:
    """The device that steps run on."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
