"""`lms.estimate`: the memory and time of a step under a budget, computed before anything runs on a device.

The step runs on "meta" tensors, which have shapes and no bytes, and on a simulated device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from weft.errors import BudgetError, UsageError
from weft.lms.activations.engine import ActivationEngine
from weft.lms.activations.guard import OperationGuard
from weft.lms.activations.recorder import StepRecorder
from weft.lms.device.simulated import SimulatedTransfer
from weft.lms.device.torch_private import cpu_attention, tree_map
from weft.lms.limit import parse_limit
from weft.lms.paging.parameters import model_bytes
from weft.lms.planning.plan import Plan
from weft.lms.planning.recording import Rates, Recording
from weft.lms.planning.residence import Paging, Residence, decide, tighter
from weft.lms.planning.search import least, make_plan
from weft.lms.tuning import DEFAULTS
from weft.text import format_size

UNLIMITED = 1 << 62  # bytes


@dataclass(frozen=True)
class Estimate:
    """The bytes that a step would take, and the plan that would keep it within a limit."""

    parameters: int  # bytes
    activations: int  # saved for the backward pass, each storage once
    peak: int  # with everything kept
    least: int  # with nothing kept: no smaller limit works, and this one is slow
    limit: int | None
    plan: Plan | None
    problem: str = ""  # why no plan keeps the budget
    residence: Residence | None = None  # what `lms.wrap` would page at this limit

    @property
    def fits(self) -> bool:
        """Whether the step fits in the limit, with a plan or without."""
        return not self.problem

    def __str__(self) -> str:
        text = (
            f"parameters {format_size(self.parameters)}, activations {format_size(self.activations)}, "
            f"peak {format_size(self.peak)} if everything is kept, {format_size(self.least)} at least"
        )
        if self.residence is not None and self.residence.away:
            text += f", {format_size(self.residence.away)} of parameters, gradients and state paged"
        if self.problem:
            return f"{text}; does not fit: {self.problem}"
        if self.plan is None:
            return text
        return f"{text}; fits as it is" if self.plan.keeps_all else f"{text}; fits: {self.plan.summary()}"


def estimate(
    model: nn.Module,
    batch: Any,
    limit: str | int | float | None = None,
    *,
    loss: Callable[[Any], torch.Tensor] | None = None,
    state: float = 0.0,
    page: Paging = "never",
    link: float = DEFAULTS.estimate_link,
) -> Estimate:
    """Return what a step of `model(batch)` takes and what a budget costs; a tuple or dict of inputs is spread out.

    `loss` makes one number of the model's output. `state` is what the optimizer keeps, in bytes for each byte of
    parameters: 2 for Adam. `page` is that of `lms.wrap`; `lms.fit` pages nothing. Times are those of an H200, so the
    slowdown is a first guess.
    """
    asked = None if limit is None else parse_limit(limit)
    if limit == "auto" and torch.cuda.is_available():
        asked = int(torch.cuda.mem_get_info()[0] * DEFAULTS.auto_share)
    shadow = copy.deepcopy(model).to("meta")
    inputs = tree_map(lambda x: x.to("meta") if isinstance(x, torch.Tensor) else x, batch)
    rates = Rates(out=link, back=link)
    residence, problem = None, ""
    if asked is not None:
        try:
            residence = decide(model_bytes(shadow, state), asked, page)
        except BudgetError as error:
            problem = str(error)
    plan = None
    while True:
        recording = _recording(shadow, inputs, loss, rates, state, residence)
        if asked is None or problem:
            break
        try:
            plan = make_plan(recording, int(asked * (1 - DEFAULTS.plan_margin)), rates)
            break
        except BudgetError as error:
            assert residence is not None
            auto = page == "auto"
            more = tighter(residence, asked, error.short) if auto else residence.smaller()
            residence, problem = more or residence, "" if more else str(error)
    native = make_plan(recording, UNLIMITED, rates)
    parameters = sum(parameter.nbytes for parameter in shadow.parameters())
    activations = sum(site.bytes for site in recording.sites)
    smallest = int(least(recording, rates).peak / (1 - DEFAULTS.plan_margin))
    return Estimate(parameters, activations, native.native.peak, smallest, asked, plan, problem, residence)


def _recording(
    shadow: nn.Module,
    inputs: Any,
    loss: Any,
    rates: Rates,
    state: float,
    residence: Residence | None,
) -> Recording:
    """Record a step with the paged part of a model away, on a device of its own, which sees no garbage of others."""
    transfer = SimulatedTransfer(
        link=rates.out,
        memory_rate=DEFAULTS.estimate_memory,
        product_rate=DEFAULTS.estimate_products,
        device=torch.device("meta"),
    )
    model = copy.deepcopy(shadow)
    transfer.adopt(*model.parameters(), *model.buffers())
    found = _record(model, inputs, loss, transfer, residence is not None and residence.gradients)
    parameters = sum(parameter.nbytes for parameter in model.parameters())
    found = found.shifted(found.base + int(state * parameters))
    if residence is None:
        return found
    # Paged gradients were dropped in the recording: of these only the window counts.
    gone = residence.sizes.paged_gradients if residence.gradients else 0
    return found.shifted(found.base - residence.away + gone)


def _record(
    model: nn.Module, inputs: Any, loss: Any, transfer: SimulatedTransfer, gradients_leave: bool
) -> Recording:
    engine = ActivationEngine(transfer, DEFAULTS.estimate_smallest_bytes)
    parameters: list[Any] = [each for each in model.parameters() if gradients_leave and each.requires_grad]
    for parameter in parameters:
        if parameter.nbytes > DEFAULTS.smallest_page_bytes:
            parameter.register_post_accumulate_grad_hook(lambda each: setattr(each, "grad", None))
    try:
        with transfer.watching():
            engine.start(UNLIMITED, None, recorder := StepRecorder(transfer, tries_recipes=True))
            engine.taped = True
            with (
                torch.autograd.graph.saved_tensors_hooks(engine.pack, engine.unpack),
                _FusedAttention(),
                OperationGuard(lambda _: None, 0, engine.graph.changed, tape=engine.tape),
            ):
                (loss or _summed)(_called(model, inputs)).backward()
            engine.recorder = None
            return recorder.finish()
    except (NotImplementedError, RuntimeError) as error:
        raise UsageError(
            f"an estimate must be able to run the model on shapes alone, got {type(error).__name__}: {error}; "
            "run one step inside lms.fit and look at lms.plan() instead"
        ) from error


class _FusedAttention(TorchFunctionMode):
    """A mode that keeps attention fused: on meta tensors torch would make matrices that no device ever makes."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **kwargs)
        query, key, value = args[:3]
        if key.shape[-3] != query.shape[-3]:  # grouped heads
            repeats = query.shape[-3] // key.shape[-3]
            key, value = (part.repeat_interleave(repeats, -3) for part in (key, value))
        mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
        return cpu_attention(query, key, value, 0.0, kwargs.get("is_causal", False), attn_mask=mask)[0]


def _called(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def _summed(output: Any) -> torch.Tensor:
    found = getattr(output, "loss", None)
    if found is None:
        found = output[0] if isinstance(output, (tuple, list)) else output
    result: torch.Tensor = found.float().square().mean()
    return result
