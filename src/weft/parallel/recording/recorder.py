"""Records one worker's step: when each layer begins, forward and backward, and what it keeps in between.

The time from one beginning to the next belongs to the layer that began, so the times of all layers add up to the pass.
Where there is no device, the clock counts operations on tensors of the device `meta` instead of seconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import mean, median
from typing import Any

import torch
from torch import nn

from weft.errors import UsageError
from weft.parallel.prediction.step import LayerRecord, RecordedStep
from weft.parallel.recording.cores import CoreUse, own_cores
from weft.parallel.recording.layers import bytes_of, layers_of, own_parameters, tensors_in
from weft.parallel.recording.optimizers import optimizer_seconds
from weft.parallel.recording.torch_private import OUTSIDE, at_backward_end, backward_number

# What a model is called with: its arguments, those by name, or one tensor.
Batch = Sequence[Any] | Mapping[str, Any] | torch.Tensor

# Tensors of state for each parameter, by the optimizer's class; of others, as Adam's.
_STATES = {"SGD": 0, "Adagrad": 1, "RMSprop": 1, "Adafactor": 0, "LBFGS": 0, "Muon": 1}
ADAM_STATES = 2


class PassClock:
    """The marks of one pass: which layer begins when, and the bytes that each keeps for its backward pass.

    What comes before the first layer belongs to it; layers that are computed again in the backward pass
    (checkpointing) belong to that.
    """

    def __init__(self, model: nn.Module, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.began_at = clock()
        self._backward = OUTSIDE  # the last call of backward: a step may have several, one for each loss
        self._parameters = {one.untyped_storage().data_ptr() for one in model.parameters() if not one.is_meta}
        self._seen: set[Any] = set()
        self.marks: list[tuple[float, str, bool]] = []  # time, layer, forward
        self.kept: dict[str, int] = {}
        self.loss_at: float | None = None
        self.ended_at = 0.0

    def begin(self, name: str) -> None:
        """Mark the beginning of a layer: of its backward part while autograd runs, else of its forward part."""
        backward = backward_number()
        if backward == OUTSIDE and self.whole:
            return  # an evaluation after the pass
        if backward not in (OUTSIDE, self._backward):
            self._backward = backward
            self.loss_at = self._clock() if self.loss_at is None else self.loss_at
            at_backward_end(self._end)
        at = self._clock() if self.marks else self.began_at
        self.marks.append((at, name, backward == OUTSIDE))

    def _end(self) -> None:
        self.ended_at = self._clock()

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a tensor that autograd keeps, once, unless it is a parameter."""
        if not self.marks or backward_number() != OUTSIDE:
            return tensor
        storage = tensor.untyped_storage()
        key: Any = storage.data_ptr() or id(storage) if not tensor.is_meta else storage._cdata
        if key not in self._parameters and key not in self._seen:
            self._seen.add(key)
            name = self.marks[-1][1]
            self.kept[name] = self.kept.get(name, 0) + storage.nbytes()
        return tensor

    def spent(self) -> dict[tuple[str, bool], float]:
        """Return what each layer took, by name and whether forward."""
        found: dict[tuple[str, bool], float] = {}
        ends = [at for at, _, _ in self.marks[1:]] + [self.ended_at]
        for (at, name, forward), end in zip(self.marks, ends, strict=True):
            found[name, forward] = found.get((name, forward), 0.0) + max(0.0, end - at)
        return found

    @property
    def whole(self) -> bool:
        """Return whether there was a backward pass."""
        return self.ended_at > 0 or self.loss_at is not None

    @property
    def seconds(self) -> float:
        """Return how long the pass took, forward and backward."""
        return sum(self.spent().values())


@contextmanager
def watched(layers: dict[str, nn.Module], current: Callable[[], PassClock | None]) -> Iterator[None]:
    """Let the layers mark their beginnings on the clock of the current pass."""

    def before(name: str) -> Callable[..., None]:
        def mark(*_: Any) -> None:
            if (clock := current()) is not None:
                clock.begin(name)

        return mark

    def after(name: str) -> Callable[..., None]:
        def hook(_module: nn.Module, _inputs: Any, outputs: Any) -> None:
            clock = current()
            if clock is None:
                return
            for tensor in tensors_in(outputs):
                if tensor.requires_grad:
                    tensor.register_hook(lambda _gradient: clock.begin(name))  # type: ignore[no-untyped-call]
                    return  # one of them is enough

        return hook

    with ExitStack() as stack:
        for name, module in layers.items():
            stack.callback(module.register_forward_pre_hook(before(name)).remove)
            stack.callback(module.register_forward_hook(after(name)).remove)
        yield


def arguments_from(batch: Batch) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments by position and by name that a batch stands for."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return ((batch,) if isinstance(batch, torch.Tensor) else tuple(batch)), {}


def record_step(
    model: nn.Module,
    batch: Batch,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    passes: int = 1,
    repeats: int = 3,
    flops: float | None = None,
    name: str = "",
    device: str = "",
) -> RecordedStep:
    """Record a pass of a model over a batch; gradients are gone afterwards, all else is as it was.

    With `flops`, operations a second of a device that is not there, model and batch are on `meta` and times are
    computed from operations.
    """
    if not any(one.requires_grad for one in model.parameters()):
        raise UsageError("a model must have layers that train, got none with a gradient; set requires_grad")
    layers = layers_of(model)
    clock, synchronise = _clock_for(model)
    if flops is not None:
        repeats = 1
    found = []
    began = CoreUse.now()
    try:
        with ExitStack() as stack:
            stack.enter_context(_as_it_was(model))
            if flops is not None:
                from torch.utils.flop_counter import FlopCounterMode

                counter = stack.enter_context(FlopCounterMode(display=False))
                clock = counter.get_total_flops
            for number in range(repeats + (flops is None)):  # the first one warms up
                if passes == 1:
                    model.zero_grad(set_to_none=True)  # with many, gradients are added up in most of them
                if number == 1:
                    began = CoreUse.now()
                found.append(_one_pass(model, batch, layers, loss, clock))
            ended = CoreUse.now()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(
            f"a model must run forward and backward to be recorded, got {type(error).__name__}: "
            f"{str(error).splitlines()[0] if str(error) else ''}; check --model and --batch"
        ) from error
    finally:
        model.zero_grad(set_to_none=True)
    synchronise()
    clocks = found[1:] if flops is None else found
    timed = flops is None
    busy, spare = (0.0, 0.0)
    if timed and next(model.parameters()).device.type == "cpu":
        busy, spare = ended.cores_since(began, own_cores(os.environ))
    optimizer_s, fixed_s = optimizer_seconds(optimizer, synchronise) if timed and optimizer else (0.0, 0.0)
    return step_from(
        model,
        layers,
        [[clock] for clock in clocks],
        seconds=1.0 if flops is None else 1 / flops,
        state_bytes=optimizer_bytes(model, optimizer),
        passes=passes,
        name=name or type(model).__name__,
        device=device or str(next(model.parameters()).device),
        timed=timed,
        optimizer_s=optimizer_s,
        optimizer_fixed_s=fixed_s,
        cores=(busy, spare),
        samples=next((int(one.shape[0]) for one in tensors_in(arguments_from(batch)) if one.dim()), 1),
    )


@contextmanager
def _as_it_was(model: nn.Module) -> Iterator[None]:
    """Put buffers (running averages, say) and random numbers back."""
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    devices = [torch.cuda.current_device()] if next(model.parameters()).is_cuda else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in buffers:
                buffer.copy_(value)


def _one_pass(
    model: nn.Module,
    batch: Batch,
    layers: dict[str, nn.Module],
    loss: Callable[[Any], torch.Tensor] | None,
    clock: Callable[[], float],
) -> PassClock:
    marks = PassClock(model, clock)
    with (
        watched(layers, lambda: marks),
        torch.autograd.graph.saved_tensors_hooks(marks.pack, lambda tensor: tensor),
    ):
        given, named = arguments_from(batch)
        output = model(*given, **named)
        (loss or default_loss)(output).backward()  # type: ignore[no-untyped-call]
    marks.ended_at = max(marks.ended_at, clock())
    if not any(not forward for _, _, forward in marks.marks):
        raise UsageError("a model must have layers that train, got none with a gradient; set requires_grad")
    return marks


def default_loss(output: Any) -> torch.Tensor:
    """Return a scalar to differentiate: the output's own loss, or the mean of its tensors."""
    given = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(given, torch.Tensor):
        return given
    tensors = [one for one in tensors_in(output) if one.requires_grad]
    if not tensors:
        raise UsageError("a model must give tensors with a gradient, got none; give a loss")
    return torch.stack([one.float().mean() for one in tensors]).sum()


def _clock_for(model: nn.Module) -> tuple[Callable[[], float], Callable[[], None]]:
    device = next(model.parameters()).device
    if device.type != "cuda":
        return time.perf_counter, lambda: None

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now, lambda: torch.cuda.synchronize(device)


def step_from(
    model: nn.Module,
    layers: dict[str, nn.Module],
    clocks: Sequence[Sequence[PassClock]],  # of the passes of each step
    *,
    state_bytes: int,  # of the optimizer
    passes: int,
    name: str,
    device: str,
    timed: bool = True,
    seconds: float = 1.0,  # in one tick of the clock
    samples: int = 1,
    optimizer_s: float = 0.0,
    optimizer_fixed_s: float = 0.0,
    other_s: float = 0.0,
    cores: tuple[float, float] = (0.0, 0.0),  # busy while computing, and to spare
) -> RecordedStep:
    """Return the record of a step from the marks of some: of a layer, the mean over passes, the median over steps."""
    owned = own_parameters(model, layers)
    spent = [[clock.spent() for clock in passes] for passes in clocks]
    order = list(dict.fromkeys([name for clock in clocks[-1] for _, name, forward in clock.marks if forward]))
    order += [layer for layer in owned if layer not in order]

    def usual(layer: str, forward: bool) -> float:
        return seconds * median(mean(one.get((layer, forward), 0.0) for one in passes) for passes in spent)

    records = tuple(
        LayerRecord(
            name=layer,
            forward_s=usual(layer, True),
            backward_s=usual(layer, False),
            parameter_bytes=bytes_of(owned.get(layer, [])),
            gradient_bytes=bytes_of(owned.get(layer, []), trained=True),
            activation_bytes=max(clock.kept.get(layer, 0) for clock in clocks[-1]),
            tensor_bytes=tuple(one.nbytes for one in owned.get(layer, []) if one.requires_grad),
        )
        for layer in order
    )
    types = {str(one.dtype).removeprefix("torch.") for one in model.parameters() if one.requires_grad}
    return RecordedStep(
        name=name,
        layers=records,
        passes=passes,
        optimizer_s=optimizer_s,
        optimizer_fixed_s=optimizer_fixed_s,
        other_s=other_s,
        optimizer_bytes=state_bytes,
        device=device,
        timed=timed,
        samples=samples,
        gradient_type=types.pop() if len(types) == 1 else "mixed",
        busy_cores=cores[0],
        spare_cores=cores[1],
    )


def optimizer_bytes(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> int:
    """Return the bytes of the optimizer's state: what there is, or what its class will keep."""
    if optimizer is not None and optimizer.state:
        return sum(one.nbytes for state in optimizer.state.values() for one in tensors_in(dict(state)))
    states, owned = ADAM_STATES, list(model.parameters())
    if optimizer is not None:
        states = _STATES.get(type(optimizer).__name__, ADAM_STATES)
        states += any(group.get("momentum") for group in optimizer.param_groups)
        owned = [one for group in optimizer.param_groups for one in group["params"]]
    return states * bytes_of(owned, trained=True)
