"""What others do to save memory, for models made of blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from benchmarks.lms_harness.measure import Report, Step, clean, timed, trained
from torch.utils.checkpoint import checkpoint


def nothing() -> None:
    pass


def checkpointed(model: Any, blocks: Iterable[Any], context: Any = None) -> Callable[[], None]:
    """Checkpoint each block; gives the way back."""
    blocks = list(blocks)
    originals = [block.forward for block in blocks]
    for block in blocks:
        inner = block.forward
        extra = {} if context is None else {"context_fn": context}
        block.forward = lambda *given, inner=inner, extra=extra, **named: checkpoint(
            inner, *given, use_reentrant=False, **extra, **named
        )

    def undo() -> None:
        for block, original in zip(blocks, originals, strict=True):
            block.forward = original

    return undo


def selective() -> Any:
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten: Any = torch.ops.aten
    kept = {aten.mm.default, aten.addmm.default, aten._scaled_dot_product_flash_attention.default}
    kept |= {aten._scaled_dot_product_cudnn_attention.default}

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    contexts: Any = create_selective_checkpoint_contexts
    return lambda: contexts(policy)


def rivals(
    report: Report, case: str, model: Any, forward: Step, native_s: float, rounds: int, ways: tuple[str, ...]
) -> None:
    for way in () if report.alone else ways:
        clean()
        step = partial(trained, model, forward)
        undo: Callable[[], None] = nothing
        try:
            if way == "checkpoint":
                undo = checkpointed(model, model.blocks)
            elif way == "selective checkpoint":
                undo = checkpointed(model, model.blocks, selective())
            elif way == "save_on_cpu":
                step = partial(
                    trained, model, forward, partial(torch.autograd.graph.save_on_cpu, pin_memory=True)
                )
            elif way.startswith("compile"):
                import torch._functorch.config as functorch

                functorch.activation_memory_budget = float(way.partition(" ")[2])
                torch._dynamo.reset()
                originals = [block.forward for block in model.blocks]
                for block in model.blocks:
                    block.forward = torch.compile(block.forward)

                def undo(originals: Any = originals) -> None:
                    for block, original in zip(model.blocks, originals, strict=True):
                        block.forward = original

            seconds, peak = timed(step, 3 if way == "save_on_cpu" else rounds)
            report.row(case, way, peak, seconds, seconds / native_s)
        except Exception as error:
            report.say(f"{case:<26} {way}: {type(error).__name__}: {str(error)[:200]}")
        finally:
            undo()
