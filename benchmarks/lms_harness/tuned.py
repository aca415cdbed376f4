"""Families that people fine-tune: side matrices, dropout, diffusion, routed experts, at parts of their activations and
at the peak of checkpointing each block, which is measured in the same run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from benchmarks.lms_harness.measure import Report, Step, clean, cuda, ours, remember, timed, trained
from benchmarks.lms_harness.rivals import checkpointed
from testing.families import GptBlock, Transformer
from testing.tuned_families import DiffusionUNet, EncoderDecoder, RoutedBlock, with_side_matrices
from torch import nn

from weft import lms

Made = tuple[nn.Module, Step]
# At 60 %, at 35 % and at the peak of checkpointing: times native's, the last one times checkpointing's; None for none.
Goals = tuple[float | None, float | None, float]


def lora(layers: int = 24, width: int = 2048, batch: int = 8, length: int = 2048) -> Made:
    """A decoder whose trunk is frozen, with side matrices of rank 16 beside each linear layer, in bfloat16."""
    with torch.device("cuda"):
        trunk = Transformer(layers, lambda: GptBlock(width, width // 128), width)
        model = with_side_matrices(trunk, 16).bfloat16()
        x = torch.randn(batch, length, width, dtype=torch.bfloat16)
    return model, lambda: model(x).float().square().mean()


def encoder_decoder(layers: int = 12, width: int = 1024, batch: int = 64, length: int = 512) -> Made:
    """Torch's own layers with dropout; the seed is set anew so that steps can be compared."""
    with torch.device("cuda"):
        model = EncoderDecoder(width, 16, layers).bfloat16()
        x = torch.randn(batch, length, width, dtype=torch.bfloat16)

    def forward() -> torch.Tensor:
        torch.manual_seed(1)
        result: torch.Tensor = model(x).float().square().mean()
        return result

    return model, forward


def diffusion(side: int = 64, batch: int = 64) -> Made:
    with torch.device("cuda"):
        model = DiffusionUNet((320, 640, 1280), 2, 1280).bfloat16()
        x = torch.randn(batch, 4, side, side, dtype=torch.bfloat16)
    return model, lambda: model(x).float().square().mean()


def routed(layers: int = 8, width: int = 2048, batch: int = 16, length: int = 2048) -> Made:
    """One of eight experts for each token. Every step has another batch, and so other sizes inside."""
    with torch.device("cuda"):
        model = Transformer(layers, lambda: RoutedBlock(width, width // 128, 8), width).bfloat16()
        batches = [torch.randn(batch, length, width, dtype=torch.bfloat16) for _ in range(4)]
    step = [0]

    def forward() -> torch.Tensor:
        step[0] += 1
        result: torch.Tensor = model(batches[step[0] % len(batches)]).float().square().mean()
        return result

    return model, forward


# By name: how to make it, and the goals.
FAMILIES: dict[str, tuple[Callable[[], Made], Goals]] = {
    "lora": (lora, (1.08, 1.20, 1.03)),
    "encoder-decoder": (encoder_decoder, (1.08, 1.20, 1.03)),
    "diffusion": (diffusion, (1.08, 1.20, 1.03)),
    "routed": (routed, (1.15, None, 1.03)),
}


def compare_with_checkpoints(
    report: Report, rounds: int, name: str, make: Callable[[], Made], goals: Goals
) -> None:
    """One family: native, checkpoint each block, and ours at three budgets."""
    torch.manual_seed(0)
    model, forward = make()
    if name != "routed":  # whose batch differs from step to step
        remember(model, forward)
    step = partial(trained, model, forward)
    native_s, peak = timed(step, rounds)
    clean()
    base = cuda.memory_allocated()
    report.row(name, "native", peak, native_s, 1.0)
    budgets = {
        "60": (base + int(0.6 * (peak - base)), goals[0]),
        "35": (base + int(0.35 * (peak - base)), goals[1]),
    }
    any_model: Any = model
    checkpoint_s = native_s
    if any_model.blocks:
        undo = checkpointed(model, any_model.blocks)
        checkpoint_s, checkpoint_peak = timed(step, rounds)
        undo()
        slower = checkpoint_s / native_s
        share = (checkpoint_peak - base) / (peak - base)
        note = f"{share:.0%} of activations"
        report.row(name, "checkpoint", checkpoint_peak, checkpoint_s, slower, "", note)
        report.claim(f"{name}-checkpoint", slower)
        budgets["peak"] = (checkpoint_peak, goals[2] * slower)
    for what, (limit, goal) in budgets.items():
        wanted = "" if goal is None else f"<= {goal:.2f}"
        ratio = ours(report, f"{name}, {what}", model, forward, limit, native_s, wanted, rounds)
        if not math.isinf(ratio):
            tell_plan(report)
            report.claim(f"{name}-{what}", ratio / (checkpoint_s / native_s) if what == "peak" else ratio)


def tell_plan(report: Report) -> None:
    """Print the plan that was used last, and how steps kept to it."""
    stats = lms.stats()
    report.say(lms.plan().explain(14))
    report.say(
        f"    {stats['over']} steps over, {stats['late']} late, {stats['evicted']} evicted, {stats['recorded']} "
        f"recorded, planning {stats['planning_ms']:.0f} ms, replans {stats['replans']}"
    )


CASES: dict[str, Callable[[Report, int], None]] = {
    name: partial(compare_with_checkpoints, name=name, make=make, goals=goals)
    for name, (make, goals) in FAMILIES.items()
}
