"""Times and peaks of whole steps, native and ours, and rows of a report."""

from __future__ import annotations

import dataclasses
import gc
import gzip
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weft import lms
from weft.errors import WeftError
from weft.lms.api import latest

GIB = 1 << 30
GB = 10**9
cuda: Any = torch.cuda
Step = Callable[[], torch.Tensor]
ROW = 5  # steps one after the other,
WARM = 2  # of which the first ones find the card in another state than it will be in
FIRST = 5  # steps in which a plan is made, each of which is timed
COMPARED = 25  # steps that are compared with their plan and with other ways, after those in which it is made


@dataclass
class Report:
    """Prints rows as they come, and adds them to a file."""

    out: Path | None
    alone: bool = False
    recordings: Path | None = None
    figures: Path | None = None  # for the figures of claims, one JSON object a line

    def claim(self, name: str, figure: float) -> None:
        """Note the figure of a claim, for the table at the end."""
        if self.figures is not None and math.isfinite(figure):
            with self.figures.open("a") as out:
                out.write(json.dumps({name: figure}) + "\n")

    def say(self, text: str) -> None:
        print(text, flush=True)
        if self.out is not None:
            with self.out.open("a") as out:
                out.write(text + "\n")

    def row(
        self, case: str, way: str, peak: float, seconds: float, ratio: float, goal: str = "", note: str = ""
    ) -> None:
        self.say(
            f"{case:<26} {way:<22} {peak / GIB:7.2f} GiB {seconds * 1e3:9.1f} ms {ratio:6.3f}x {goal} {note}".rstrip()
        )

    def keep(self, case: str, limit: int, rates: Any, recording: Any) -> None:
        """What a plan was made from, to plan it again anywhere."""
        if self.recordings is not None:
            self.recordings.mkdir(parents=True, exist_ok=True)
            name = "".join(letter if letter.isalnum() else "-" for letter in case)
            found = {"limit": limit, "rates": dataclasses.asdict(rates), **dataclasses.asdict(recording)}
            with gzip.open(self.recordings / f"{name}-{limit >> 20}.json.gz", "wt") as out:
                json.dump(found, out)


def clean() -> None:
    lms.forget()
    gc.collect()
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()


def in_a_row(steps: Sequence[Callable[[], Any]], warm: int = WARM) -> list[float]:
    """Seconds of each, one after the other as in training: the device is waited for at the end alone."""
    marks = [cuda.Event(enable_timing=True) for _ in range(len(steps) + 1)]
    marks[0].record()
    for step, mark in zip(steps, marks[1:], strict=True):
        step()
        mark.record()
    cuda.synchronize()
    return [start.elapsed_time(end) / 1e3 for start, end in pairwise(marks)][warm:]


def timed(step: Callable[[], Any], rounds: int, warm: int = 2) -> tuple[float, int]:
    """The median seconds of steps in a row, and the peak of bytes allocated meanwhile."""
    for _ in range(warm):
        step()
    cuda.synchronize()
    cuda.reset_peak_memory_stats()
    times = in_a_row([step] * rounds, warm=0)
    return statistics.median(times), cuda.max_memory_allocated()


def waited_for(step: Callable[[], Any]) -> float:
    """Seconds of one step by the host's clock, with all that it does on the card."""
    began = time.perf_counter()
    step()
    cuda.synchronize()
    return time.perf_counter() - began


def trained(
    model: Any, forward: Step, within: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> None:
    """One step; gradients are made from nothing, unless the model says that they stay."""
    model.zero_grad(set_to_none=not getattr(model, "keeps_gradients", False))
    with within():
        torch.autograd.backward(forward())


def squared(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = model(x).float().square().mean()
    return result


def ours(
    report: Report,
    case: str,
    model: nn.Module,
    forward: Step,
    limit: int,
    native_s: float,
    goal: str,
    rounds: int,
    turns: bool = True,
) -> float:
    """A row of ours; gives the ratio. In turns with native steps where those fit: a warm card is slower than a cold."""
    clean()
    step = partial(trained, model, forward, lambda: lms.fit(limit))
    rows = max(1, rounds // 2)
    try:
        first = [waited_for(step) for _ in range(FIRST)]
        for _ in range(COMPARED):
            step()
        late = lms.stats()["late"]
        natively: list[float] = []
        found: list[float] = []
        for _ in range(rows):
            natively += in_a_row([partial(trained, model, forward)] * ROW) if turns else [native_s]
            found += in_a_row([step] * ROW)
    except (WeftError, torch.OutOfMemoryError) as error:
        report.say(f"{case:<26} ours, {limit / GIB:.1f} GiB: {type(error).__name__}: {str(error)[:300]}")
        return float("inf")
    stats, plan = lms.stats(), lms.plan()
    began = time.perf_counter()
    step()
    launched = time.perf_counter() - began
    cuda.synchronize()
    report.keep(case, limit, latest().transfer.rates(), plan.recording)
    native_s, seconds = statistics.median(natively), statistics.median(found)
    report.claim(f"{case.replace(', ', '-')}-first", max(first) / native_s)
    note = (
        f"rebuilt {plan.bytes_of('recipe') / GIB:.1f}, swapped {plan.bytes_of('swap') / GIB:.1f} GiB, predicted "
        f"{plan.slowdown:.3f}x, stall {plan.timeline.stall_s * 1e3:.0f} "
        f"(was {stats['stall_ms']:.0f}) ms, launched in {launched * 1e3:.0f} ms, late "
        f"{(stats['late'] - late) / (rows * ROW):g}, first steps "
        f"{', '.join(f'{took / native_s:.1f}' for took in first)}x, "
        f"{'under' if stats['peak'] <= limit else 'OVER'} budget, gradients {same(model, forward, limit)}"
    )
    report.row(case, f"ours, {limit / GIB:.1f} GiB", stats["peak"], seconds, seconds / native_s, goal, note)
    return float(seconds / native_s)


def same(model: nn.Module, forward: Step, limit: int) -> str:
    """Compare a few gradients with those of a native step; the native one may not fit."""
    if getattr(model, "reference", None) is None:
        return "not compared"
    torch.use_deterministic_algorithms(True)
    trained(model, forward, lambda: lms.fit(limit))
    cuda.synchronize()
    torch.use_deterministic_algorithms(False)
    reference: Any = model.reference
    worst = 0.0
    compared = 0
    for parameter, expected in zip(picked(model), reference, strict=True):
        if expected is None:
            continue
        compared += 1
        found = gradient(parameter)
        if not torch.equal(found, expected.to(found.device)):
            gap = (found - expected.to(found.device)).float().norm()
            worst = max(worst, float(gap / expected.float().norm().clamp_min(1e-30)))
    part = f"of the {compared} of {len(reference)} that two native steps agree on "
    told = part if compared < len(reference) else ""
    return told + ("bitwise equal" if worst == 0.0 else f"differ by {worst:.1e}")


def picked(model: nn.Module) -> list[nn.Parameter]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return [parameters[index] for index in sorted({0, 1, len(parameters) // 2, len(parameters) - 1})]


def remember(model: Any, forward: Step) -> None:
    """Keep some native gradients to compare with: those that a native step gives a second time, too."""
    torch.use_deterministic_algorithms(True)
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False
    found = []
    for _ in range(2):
        trained(model, forward)
        found.append([gradient(parameter).to("cpu") for parameter in picked(model)])
    torch.use_deterministic_algorithms(False)
    # Some of torch's kernels add in any order, whatever is asked for: then a native step differs from itself.
    model.reference = [one if torch.equal(one, two) else None for one, two in zip(*found, strict=True)]


def gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


class capped:  # noqa: N801
    """A smaller card."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> None:
        clean()
        cuda.set_per_process_memory_fraction(self.size / cuda.get_device_properties(0).total_memory)

    def __exit__(self, *_: object) -> None:
        cuda.set_per_process_memory_fraction(1.0)
