"""Transformers: GPT and Llama under a budget, random lengths, and an optimizer whose state is paged."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch
from benchmarks.lms_harness.measure import (
    GIB,
    Report,
    Step,
    clean,
    cuda,
    in_a_row,
    ours,
    remember,
    timed,
    trained,
)
from benchmarks.lms_harness.rivals import checkpointed, nothing, rivals
from testing.families import GptBlock, LlamaBlock, Transformer
from torch import nn

from weft import lms


def gpt(layers: int = 24, width: int = 2048, batch: int = 16, length: int = 2048) -> tuple[nn.Module, Step]:
    with torch.device("cuda"):
        model = Transformer(layers, lambda: GptBlock(width, width // 128), width).bfloat16()
        x = torch.randn(batch, length, width, dtype=torch.bfloat16)
    return model, lambda: model(x).float().square().mean()


def case_gpt(report: Report, rounds: int) -> None:
    torch.manual_seed(0)
    model, forward = gpt()
    remember(model, forward)
    native_s, peak = timed(lambda: trained(model, forward), rounds)
    report.row("gpt 24x2048, 16x2048", "native", peak, native_s, 1.0)
    for limit, goal in ((26, 1.04), (16, 1.10), (9, 1.20)):
        ratio = ours(
            report, "gpt 24x2048, 16x2048", model, forward, limit * GIB, native_s, f"<= {goal:.2f}", rounds
        )
        report.claim(f"gpt-{limit}", ratio)
        report.say(lms.plan().explain(12))
    ways = ("checkpoint", "selective checkpoint", "save_on_cpu", "compile 1", "compile 0.5", "compile 0.2")
    rivals(report, "gpt 24x2048, 16x2048", model, forward, native_s, rounds, ways)


def llama(layers: int, length: int) -> tuple[nn.Module, Step]:
    with torch.device("cuda"):
        model = Transformer(layers, lambda: LlamaBlock(4096, 32, 8, 14336), 4096).bfloat16()
        x = torch.randn(1, length, 4096, dtype=torch.bfloat16)
    return model, lambda: model(x).float().square().mean()


def case_llama(report: Report, rounds: int) -> None:
    for length, share, goal in ((4096, 0.6, "<= 1.08"), (32768, 0.9, "<= 1.10")):
        torch.manual_seed(0)
        name = f"llama-8B layers, T={length // 1024}k"
        model, forward = llama(16, length)
        # Accumulated, or they would grow while activations shrink, and hide them.
        model.keeps_gradients = True  # type: ignore[assignment]
        remember(model, forward)
        native_s, peak = timed(lambda: trained(model, forward), rounds)  # noqa: B023
        report.row(name, "native", peak, native_s, 1.0)
        trained(model, forward, lambda: lms.fit(130 * GIB))
        plan = lms.plan()
        activations = sum(site.bytes for site in plan.recording.sites)
        limit = int(peak - share * activations)
        report.say(
            f"activations {activations / GIB:.1f} GiB; {share:.0%} of them removed leaves {limit / GIB:.1f} GiB"
        )
        ratio = ours(report, name, model, forward, limit, native_s, goal, rounds)
        report.claim(f"llama-{length // 1024}k", ratio)
        rivals(report, name, model, forward, native_s, rounds, ("checkpoint", "selective checkpoint"))
        model, forward = None, None  # type: ignore[assignment]
        clean()


def case_lengths(report: Report, rounds: int) -> None:
    """Random lengths under one budget, beside the best fixed choice: native where it fits, else checkpoint."""
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Transformer(8, lambda: LlamaBlock(2048, 16, 4, 7168), 2048).bfloat16()
    random = torch.Generator().manual_seed(1)
    lengths = [int(torch.randint(2, 65, (1,), generator=random)) * 256 for _ in range(100)]
    inputs = {
        length: torch.randn(1, length, 2048, dtype=torch.bfloat16, device="cuda") for length in set(lengths)
    }
    limit = 9 * GIB

    def step(length: int, within: Callable[[], AbstractContextManager[Any]]) -> None:
        trained(model, lambda: model(inputs[length]).float().square().mean(), within)

    natively: dict[int, bool] = {}
    for length in sorted(inputs):
        _, peak = timed(lambda: step(length, nullcontext), 1, warm=1)  # noqa: B023
        natively[length] = peak <= limit

    def fixed(length: int) -> None:
        undo = nothing if natively[length] else checkpointed(model, model.blocks)
        step(length, nullcontext)
        undo()

    told: list[str] = []  # what else each step of ours had to do

    def fitted(length: int) -> None:
        before = lms.stats() if told else {"recorded": 0, "planning_ms": 0.0}
        step(length, lambda: lms.fit(limit))
        now = lms.stats()
        planned = "planned" if now["planning_ms"] > before["planning_ms"] else "as before"
        told.append("recorded" if now["recorded"] > before["recorded"] else planned)

    in_a_row([partial(fixed, length) for length in inputs])
    clean()
    best = in_a_row([partial(fixed, length) for length in lengths], warm=0)
    clean()
    first, again = (in_a_row([partial(fitted, length) for length in lengths], warm=0) for _ in range(2))
    more = dict.fromkeys(("recorded", "planned", "as before"), 0.0)
    for what, took, ideal in zip(told, first, best, strict=False):
        more[what] += took - ideal
    stats = lms.stats()
    report.row(
        "100 random lengths to 16k", f"ours, {limit / GIB:.0f} GiB", stats["peak"], sum(first), sum(first) / sum(best),
        "<= 1.05", f"second time {sum(again) / sum(best):.3f}x; best fixed choice {sum(best):.2f} s; {stats['shapes']} "
        f"shapes, {told.count('recorded')} steps recorded, {stats['over']} over; {stats['planning_ms']:.0f} ms of "
        "planning; more than the fixed choice, of steps "
        + ", ".join(f"{what}: {seconds:+.2f} s" for what, seconds in more.items()),
    )  # fmt: skip
    report.claim("lengths", sum(first) / sum(best))
    report.claim("lengths-again", sum(again) / sum(best))


def case_adamw(report: Report, rounds: int) -> None:
    """An 8B model with AdamW in float32, bf16 autocast, 32k tokens a step, beside SGD, which has no state; and half of
    its layers, whose state fits, natively and in so little memory that as much of the state is paged.
    """
    whole = _Tuned(32)
    native = torch.optim.AdamW(whole.model.parameters(), 1e-5)
    try:
        whole.step(native)
        report.say(f"{whole.name}: native runs, peak {cuda.max_memory_allocated() / GIB:.1f} GiB")
    except torch.OutOfMemoryError:
        report.say(f"{whole.name}: native runs out of memory")
    native.state.clear()
    whole.model.zero_grad(set_to_none=True)
    clean()
    limit = 132 * GIB
    plain = torch.optim.SGD(whole.model.parameters(), 1e-5)
    reference = whole.model.forward
    lms.wrap(whole.model, plain, limit=limit, page="never")
    base = whole.seconds(report, plain, 4)
    report.row(whole.name, "SGD, no state", lms.stats()["peak"], base, 1.0)
    whole.model.forward = reference
    report.claim("adamw-8B", whole.paged(report, limit, base, "runs"))
    del whole, plain, reference, native
    clean()
    half = _Tuned(16)
    optimizer = torch.optim.AdamW(half.model.parameters(), 1e-5)
    base = half.seconds(report, optimizer, 4)
    report.row(half.name, "native AdamW", cuda.max_memory_allocated(), base, 1.0)
    del optimizer
    report.claim("adamw-4.5B", half.paged(report, 72 * GIB, base, "<= 1.10"))


class _Tuned:
    """A model of the shape of Llama 8B, of some layers, and its steps."""

    def __init__(self, layers: int, batches: int = 8, length: int = 4096) -> None:
        torch.manual_seed(0)
        with torch.device("cuda"):
            block = partial(LlamaBlock, 4096, 32, 8, 14336)
            self.model: Any = Transformer(layers, block, 4096, vocabulary=128256)
            self.x = torch.randint(128256, (1, length))
        self.batches = batches
        count = sum(parameter.numel() for parameter in self.model.parameters())
        self.name = f"AdamW {count / 1e9:.1f}B, {batches}x{length}"

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(self.batches):
            with torch.autocast("cuda", torch.bfloat16):
                logits = self.model(self.x)
                loss = nn.functional.cross_entropy(logits[0, :-1], self.x[0, 1:])
            del logits
            torch.autograd.backward(loss)
        optimizer.step()

    def seconds(self, report: Report, optimizer: torch.optim.Optimizer, times: int) -> float:
        """Of the last steps, one after the other as in training: what leaves after a step does so during the next."""
        found = in_a_row([partial(self.step, optimizer)] * times, warm=0)
        report.say("    steps of " + ", ".join(f"{value:.2f}" for value in found) + " s")
        return statistics.median(found[-3:])

    def paged(self, report: Report, limit: int, base: float, goal: str) -> float:
        """Report steps whose optimizer state is paged; return their time beside `base`."""
        self.model.zero_grad(set_to_none=True)
        clean()
        optimizer = torch.optim.AdamW(self.model.parameters(), 1e-5)
        lms.wrap(self.model, optimizer, limit=limit)
        took = self.seconds(report, optimizer, 12)
        stats = lms.stats()
        report.row(
            self.name, f"ours, {limit / GIB:.0f} GiB", stats["peak"], took, took / base, goal,
            f"pinned {stats['pinned'] / GIB:.0f} GiB, {stats['over']} passes over budget",
        )  # fmt: skip
        report.say(lms.plan().explain(12))
        return took / base
