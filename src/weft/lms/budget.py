"""A budget: the bytes of device memory that training may use, the link to the host, and the models that share both.

It is what the session that plans steps (`activations/session.py`), the plans themselves (`planning/learned.py`) and the
pages of wrapped models (`paging/`) have in common, and knows none of them: a model enters its `ModelUsage`, and keeps
that up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from weakref import WeakSet

from weft.lms.device.transfer import Transfer
from weft.lms.planning.residence import Residence, UseOrder, play
from weft.lms.planning.split import Split
from weft.lms.tuning import DEFAULTS, LmsTuning


@dataclass(eq=False)
class ModelUsage:
    """The use that one wrapped model makes of a budget: what of it is paged, and what of that is on the device."""

    residence: Residence
    split: Split = field(
        default_factory=Split
    )  # bytes of the budget that activations leave to optimizer state
    pages_parameters: bool = False
    pages_gradients: bool = False
    on_device: int = 0  # bytes of pages of parameters and gradients
    state_on_device: int = 0  # bytes of optimizer state that leave when they are asked to
    bytes_in: int = 0  # copied to the device since the start
    use_order: UseOrder | None = None  # in which passes use the paged parameters
    parameter_bytes: Mapping[int, int] = field(default_factory=dict)  # by the numbers in `use_order`
    # Lets state leave as long as the given function says that more should; None where no state is paged.
    release_state: Callable[[Callable[[], bool]], None] | None = None

    @property
    def unfilled(self) -> int:
        """Bytes that pages may still take; below zero while state is on the device that leaves when asked."""
        parameters = self.residence.window if self.pages_parameters else 0
        gradients = self.residence.gradient_window if self.pages_gradients else 0
        return parameters + gradients - self.on_device - self.state_on_device


class Budget:
    """Device memory that training may use, in bytes, and the models whose pages share it."""

    def __init__(self, transfer: Transfer, limit: int, tuning: LmsTuning = DEFAULTS) -> None:
        self.transfer, self.limit, self.tuning = transfer, limit, tuning
        self.models: WeakSet[ModelUsage] = WeakSet()  # a model leaves it by dying
        self.peak = 0  # the most bytes that were ever in use
        self.over = 0  # steps whose peak was above the limit

    @property
    def plannable(self) -> int:
        """Bytes that plans may use: a little less than the limit."""
        return int(self.limit * (1 - self.tuning.plan_margin))

    @property
    def free(self) -> int:
        """Bytes that plans may still use now; below zero when more are in use."""
        return self.plannable - self.transfer.allocated()

    def in_use(self) -> int:
        """Bytes in use, with those that pages may still take, and without state that leaves when asked."""
        return self.transfer.allocated() + self.unfilled()

    def unfilled(self) -> int:
        """Bytes that the pages of all models may still take, less the state that leaves when asked."""
        return sum(model.unfilled for model in self.models)

    @property
    def split(self) -> Split:
        """Bytes that activations leave to the optimizer state of all models."""
        splits = [model.split for model in self.models]
        return Split(usual=sum(split.usual for split in splits), last=sum(split.last for split in splits))

    @property
    def pages_state(self) -> bool:
        """Whether optimizer state is paged: then the time and memory of a step decide about the memory of others."""
        return bool(self.models) and any(model.release_state is not None for model in self.models)

    @property
    def pages_parameters(self) -> bool:
        return bool(self.models) and any(model.pages_parameters for model in self.models)

    @property
    def state_on_device(self) -> int:
        return sum(model.state_on_device for model in self.models)

    @property
    def paged_host_bytes(self) -> int:
        """Bytes of host memory that pages take."""
        return sum(model.residence.hosted for model in self.models)

    def release_state(self, more: Callable[[], bool], last: ModelUsage | None = None) -> None:
        """Let optimizer state leave as long as `more()` is true; that of the model `last` goes last."""
        for model in sorted(self.models, key=lambda model: model is last):
            if model.release_state is not None and more():
                model.release_state(more)

    def note_peak(self, peak: int) -> None:
        """Take in the most bytes that were in use during a step."""
        self.peak = max(self.peak, peak)
        self.over += peak > self.limit

    def explain_pages(self, seconds: float) -> str:
        """Lines that tell what is paged, and what that costs a step of so many seconds."""
        return "\n".join(self._explain(model, seconds) for model in self.models)

    def _explain(self, model: ModelUsage, seconds: float) -> str:
        played = None
        if model.use_order is not None:
            rates, window = self.transfer.rates(), model.residence.window
            played = play(model.use_order, model.parameter_bytes, window, seconds, rates, self.tuning)
        return model.residence.explain(played, model.split.usual, model.split.last)
