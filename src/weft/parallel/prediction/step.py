"""The recorded step of one worker: what each layer computes, holds and owns. Pure.

A step of training is a number of passes (micro-batches), forward and backward, and one step of the optimizer. What is
recorded is one pass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.errors import UsageError

FLOAT32_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class LayerRecord:
    """One layer in the order of the forward pass: a block of a model, gathered and reduced as a whole."""

    name: str
    forward_s: float
    backward_s: float
    parameter_bytes: int
    gradient_bytes: int
    activation_bytes: int = 0  # kept from its forward to its backward pass
    tensor_bytes: tuple[int, ...] = ()  # of each gradient, in the order of the parameters; none: not known

    def __post_init__(self) -> None:
        for field in ("forward_s", "backward_s"):
            value = getattr(self, field)
            if not 0 <= value < float("inf"):
                raise UsageError(
                    f"{field} of layer {self.name} must be a time in seconds, got {value}; record again"
                )
        for field in ("parameter_bytes", "gradient_bytes", "activation_bytes"):
            if getattr(self, field) < 0:
                raise UsageError(
                    f"{field} of layer {self.name} must not be negative, got {getattr(self, field)}; record again"
                )


@dataclass(frozen=True, kw_only=True)
class RecordedStep:
    """One worker's step: the layers of a pass, how many passes make a step, and the optimizer's part."""

    name: str  # of the model
    layers: tuple[LayerRecord, ...]
    passes: int = 1  # micro-batches in a step
    optimizer_s: float = 0.0  # of the whole model on one worker
    optimizer_fixed_s: float = 0.0  # of it, that does not become less with smaller tensors: calls for each
    other_s: float = 0.0  # of a step beside its passes and the optimizer: batches, clipping, logs
    optimizer_bytes: int = 0  # state of the optimizer for all parameters
    device: str = "cpu"  # what it was recorded on, or computed for
    timed: bool = True  # False: times are computed from shapes
    samples: int = 1  # in a pass
    gradient_type: str = "float32"  # lighter wires are for sums of float32 alone
    busy_cores: float = 0.0  # processor time of a worker while it computes a pass, by the time the pass takes
    spare_cores: float = 0.0  # that it could use beside them; 0 of both: not known

    def __post_init__(self) -> None:
        if not self.layers or not any(layer.parameter_bytes for layer in self.layers):
            raise UsageError(
                f"a recorded step must have layers with parameters, got none of {self.name}; record a model that trains"
            )
        if not (0 <= self.optimizer_s < float("inf") and 0 <= self.other_s < float("inf")):
            raise UsageError(
                f"times of a step must be in seconds, got {self.optimizer_s} and {self.other_s}; record again"
            )
        if self.passes < 1:
            raise UsageError(f"a step must have at least 1 pass, got {self.passes}; record again")

    @property
    def parameter_bytes(self) -> int:
        return sum(layer.parameter_bytes for layer in self.layers)

    @property
    def gradient_bytes(self) -> int:
        return sum(layer.gradient_bytes for layer in self.layers)

    @property
    def activation_bytes(self) -> int:
        return sum(layer.activation_bytes for layer in self.layers)

    @property
    def forward_s(self) -> float:
        """The forward time of one pass."""
        return sum(layer.forward_s for layer in self.layers)

    @property
    def backward_s(self) -> float:
        return sum(layer.backward_s for layer in self.layers)

    def optimizer_s_of(self, shards: int) -> float:
        """Return what the optimizer takes for one of so many shards of every tensor."""
        fixed_s = min(self.optimizer_fixed_s, self.optimizer_s)
        return fixed_s + (self.optimizer_s - fixed_s) / shards

    @property
    def compute_s(self) -> float:
        """Return what a step computes, if nothing is ever waited for."""
        return self.passes * (self.forward_s + self.backward_s) + self.optimizer_s + self.other_s

    def in_passes(self, passes: int) -> RecordedStep:
        """Return the same step in fewer, larger passes: the same samples, more activations at a time."""
        if self.passes % passes:
            raise UsageError(
                f"a step of {self.passes} passes must be parted evenly, got {passes} passes; use a divisor"
            )
        times = self.passes // passes
        if times == 1:
            return self
        layers = tuple(
            replace(
                layer,
                forward_s=layer.forward_s * times,
                backward_s=layer.backward_s * times,
                activation_bytes=layer.activation_bytes * times,
            )
            for layer in self.layers
        )
        return replace(self, layers=layers, passes=passes, samples=self.samples * times)
