"""The interface of a device and its link to the host: memory in use, marks in time, and copies beside the compute.

Two classes implement it: `CudaTransfer`, and `SimulatedTransfer`, which tests and estimates run on.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from weft.errors import UsageError
from weft.lms.device.host_memory import Block, CopyTicket
from weft.lms.planning.recording import Rates


class Transfer(Protocol):
    """One device and its link to the host.

    No call blocks the thread that launches work, except `seconds` and `settle`. Copies in one direction run in the
    order of calls. A source must stay alive until `wait` was called for its copy; a target must not be read before
    that.
    """

    device: torch.device
    host_limit: int  # bytes of host memory that copies may take
    is_launched: bool  # operations are launched, and done later: the host has time of its own

    def watching(self) -> AbstractContextManager[object]:
        """Return a context for the steps that are to be measured and bounded."""
        ...

    def allocated(self) -> int:
        """Return the bytes in use on the device."""
        ...

    def peak(self) -> int:
        """Return the most bytes in use since `reset_peak`."""
        ...

    def levels(self) -> tuple[int, int]:
        """Return `allocated()` and `peak()`, for the time that one of them takes."""
        ...

    def reset_peak(self) -> None: ...

    def capacity(self) -> int:
        """Return the bytes that this process could use: those in use and those free."""
        ...

    def rates(self) -> Rates:
        """Return the rates of the link, which are measured when first asked for."""
        ...

    def mark(self) -> Any:
        """Mark a point in the order of the compute."""
        ...

    def busy(self, seconds: float | None = None) -> None:
        """Keep the device busy for a moment, so that the marks that follow time the work and not its launching."""
        ...

    def passed(self, mark: Any) -> bool:
        """Return whether the compute has come to a mark."""
        ...

    def seconds(self, start: Any, end: Any) -> float:
        """Return the seconds between two marks; waits for the later one."""
        ...

    def stream(self) -> Any:
        """Return the stream that the compute runs on now; memory that it allocates belongs to that stream."""
        ...

    def host(self, size: int) -> Block:
        """Take host memory for a copy; BudgetError when the host's limit is reached."""
        ...

    def give_back(self, block: Block) -> None: ...

    def give_back_later(self, block: Block) -> None:
        """Give a block back from any thread and at any moment, such as from `__del__`."""
        ...

    def copy_out(self, source: torch.Tensor, block: Block) -> CopyTicket:
        """Start a copy of a flat tensor to the host, after the compute so far; return its ticket."""
        ...

    def copy_in(self, block: Block, target: torch.Tensor) -> CopyTicket:
        """Start a copy back, after the compute so far and after the copy out to the same block; return its ticket."""
        ...

    def wait(self, ticket: Any, stream: Any = None) -> None:
        """Let the compute on a stream, by default the current one, wait for a copy or for a mark."""
        ...

    def settle(self) -> None:
        """Wait on this thread for all copies."""
        ...

    def pinned(self) -> tuple[int, int]:
        """Return the bytes of host memory held, and those in use."""
        ...


def transfer_for(device: torch.device, host: int | None) -> Transfer:
    """Return the transfer that serves a device."""
    if device.type == "cuda":
        from weft.lms.device.cuda import CudaTransfer

        return CudaTransfer(device, host)
    raise UsageError(
        f"large model support must have a CUDA device, got {device.type}; on this machine leave it out, or give "
        "transfer=weft.lms.device.simulated.SimulatedTransfer() to try it without one"
    )


def current_device() -> torch.device:
    """Return the device that steps run on."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


# Operations whose results have a size that the host must know before it goes on, and those that give it a number.
_SIZED_BY_DATA = frozenset(
    ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive")
    + ("bincount",)
)
_NUMBERS = frozenset(("_local_scalar_dense", "equal"))
_INDEXING = frozenset(("index", "index_put", "index_put_", "_index_put_impl_"))


def host_waits_for(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether the host waits for the result of an operation before it goes on.

    What it waits for comes by the queue of copies to the host, behind all copies that were started before.
    """
    schema = getattr(func, "_schema", None)
    if schema is None:
        return False
    name: str = schema.name.partition("::")[2]
    if name in _SIZED_BY_DATA:
        return True
    if name in _NUMBERS:  # numbers on the host, such as an optimizer's count of steps, are there already
        return bool(args[0].device.type == "cuda")
    if name in _INDEXING:
        masks = args[1] if len(args) > 1 and isinstance(args[1], (list, tuple)) else ()
        return any(mask is not None and mask.dtype in (torch.bool, torch.uint8) for mask in masks)
    if name == "repeat_interleave":
        return kwargs.get("output_size") is None
    if name == "copy_":
        return bool(args[0].device.type == "cpu" and args[1].device.type == "cuda")
    if name == "_to_copy" and args[0].device.type == "cuda" and not kwargs.get("non_blocking"):
        return torch.device(kwargs.get("device") or "cuda").type == "cpu"
    return False
