"""What large model support adds to the thread that launches a step, beside checkpointing each block; needs no device.

    python benchmarks/lms_overhead.py                            every family
    python benchmarks/lms_overhead.py --families t5 --rounds 40  one
    python benchmarks/lms_overhead.py --profile t5 peak          where the time of one way goes

Models of transformers and our own are so small here that nearly all of a step is launching: Python, dispatch, autograd.
Plans are made on a simulated device whose link is too slow to swap, so that all which leaves is rebuilt; then the
simulation stops watching, and steps of all ways take turns. Times are the processor's, medians of whole steps (forward
and backward); budgets are parts of the activation memory that a native step takes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from benchmarks import claims
from benchmarks.lms_harness.rivals import checkpointed
from testing.families import GptBlock, Swin, Transformer
from torch.utils._python_dispatch import TorchDispatchMode

from weft import lms
from weft.lms.device.simulated import SimulatedArena, SimulatedTransfer

Made = tuple[Any, Callable[[], torch.Tensor]]  # a model with its blocks, and its loss
WIDTH, LENGTH, BATCH, LAYERS = 32, 16, 4, 6
SETTLING = 30  # steps in which plans are made, compared and made again
SLOW_LINK = 2e7  # bytes a second: in a step a tenth of what it saves could be swapped
VOCABULARY = 64


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that counts the operations of a step."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = self.count_all = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count_all += 1
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


class TimedArena(SimulatedArena):  # type: ignore[no-untyped-call]
    """A mode that counts memory, and the time that it takes to do so: steps are timed without that."""

    seconds = 0.0
    more_s = 0.0  # that an operation takes longer because there is a mode at all

    def calibrate(self, step: Callable[[], None]) -> None:
        """Learn how much longer an operation takes than without this mode."""
        natively, watched, operations = [], [], 0
        for _ in range(10):
            began = time.process_time()
            step()
            natively.append(time.process_time() - began)
            with self, Operations() as seen:
                step()
            operations = seen.count_all
            with self:
                began, before = time.process_time(), self.seconds
                step()
                watched.append(time.process_time() - began - self.seconds + before)
        self.more_s = max(0.0, statistics.median(watched) - statistics.median(natively)) / operations

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        began, inside = time.process_time(), 0.0

        def timed(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            start = time.process_time()
            try:
                return func(*args, **kwargs)
            finally:
                inside += time.process_time() - start

        timed.is_view, timed._schema = func.is_view, func._schema  # type: ignore[attr-defined]
        try:
            return super().__torch_dispatch__(timed, types, args, kwargs)
        finally:
            self.seconds += time.process_time() - began - inside + self.more_s


class UnwatchedTransfer(SimulatedTransfer):
    """A simulated device that does all its work in no time, so that steps take what launching them takes; it can stop
    looking at operations, which would hide all else.
    """

    watches = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._arena = TimedArena(self)

    def mark(self) -> float:
        assert isinstance(self._arena, TimedArena)
        return time.process_time() - self._arena.seconds

    def calibrate(self, step: Callable[[], None]) -> None:
        """Let the device see the batch, and how long it takes to look at operations."""
        assert isinstance(self._arena, TimedArena)
        self._arena.calibrate(step)

    def passed(self, mark: float) -> bool:
        return True

    def watching(self) -> AbstractContextManager[object]:
        return super().watching() if self.watches else nullcontext()


def t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(
        vocab_size=VOCABULARY,
        decoder_start_token_id=0,
        d_model=WIDTH,
        d_ff=4 * WIDTH,
        d_kv=WIDTH // 4,
        num_layers=LAYERS // 2,
        num_heads=4,
        use_cache=False,
    )
    model: Any = T5ForConditionalGeneration(config).train()
    x = torch.randint(VOCABULARY, (BATCH, LENGTH))
    model.blocks = [*model.encoder.block, *model.decoder.block]
    return model, lambda: model(input_ids=x, labels=x).loss


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=4,
        n_positions=LENGTH,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model: Any = GPT2LMHeadModel(config).train()
    x = torch.randint(VOCABULARY, (BATCH, LENGTH))
    model.blocks = list(model.transformer.h)

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            result: torch.Tensor = model(input_ids=x, labels=x).loss
        return result

    return model, loss


def plain() -> Made:
    model: Any = Transformer(LAYERS, lambda: GptBlock(WIDTH, 4), WIDTH)
    x = torch.randn(BATCH, LENGTH, WIDTH)
    return model, lambda: model(x).square().mean()


def swin() -> Made:
    model: Any = Swin(WIDTH // 2, LAYERS // 2)
    x = torch.randn(BATCH, 3, 64, 64)
    return model, lambda: model(x).float().square().mean()


FAMILIES: dict[str, Callable[[], Made]] = {"t5": t5, "gpt2": gpt2, "swin": swin, "gpt": plain}


@dataclass
class Way:
    """One way to run a step, and the processor's seconds of each."""

    name: str
    step: Callable[[], None]
    before: Callable[[], Callable[[], None]] = lambda: lambda: None
    told: str = ""

    def __post_init__(self) -> None:
        self.seconds: list[float] = []

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def trained(model: Any, loss: Callable[[], torch.Tensor]) -> None:
    model.zero_grad(set_to_none=False)  # gradients stay: of so small a model they are larger than activations
    torch.manual_seed(1)
    torch.autograd.backward(loss())


def within(step: Callable[[], None], limit: int, transfer: UnwatchedTransfer) -> None:
    with lms.fit(limit, transfer=transfer):
        step()


def device(model: Any) -> UnwatchedTransfer:
    transfer = UnwatchedTransfer(link=SLOW_LINK, is_launched=True)
    transfer.adopt(*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()))
    return transfer


def peak_of(step: Callable[[], None], model: Any) -> tuple[int, int]:
    """Return the bytes that are in use before a step, and its peak."""
    transfer = device(model)
    with transfer.watching():
        transfer.reset_peak()
        base = transfer.allocated()
        step()
        return base, transfer.peak()


def ours(name: str, step: Callable[[], None], model: Any, limit: int) -> Way:
    """Return steps within a budget, after those in which its plan is made."""
    transfer = device(model)
    transfer.calibrate(step)
    run = partial(within, step, limit, transfer)
    for _ in range(SETTLING):
        run()
    transfer.watches = False
    plan = lms.plan()
    rebuilt, swapped = plan.choices.count("recipe"), plan.choices.count("swap")
    told = (
        f"{rebuilt} tensors rebuilt, {swapped} swapped, {len(plan.choices)} saved, {len(plan.called)} blocks"
    )
    return Way(name, run, told=told)


def ways(model: Any, loss: Callable[[], torch.Tensor]) -> list[Way]:
    """Return all ways to run a step of a model."""
    step = partial(trained, model, loss)
    step()
    base, peak = peak_of(step, model)
    by_hand = Way("checkpoint", step, partial(checkpointed, model, model.blocks))
    undo = by_hand.before()
    _, least = peak_of(step, model)
    undo()
    budgets = {
        "fits": 2 * peak,
        "60": base + int(0.6 * (peak - base)),
        "35": base + int(0.35 * (peak - base)),
        "peak": least,
    }
    return [
        Way("native", step),
        by_hand,
        *(ours(name, step, model, limit) for name, limit in budgets.items()),
    ]


def take_turns(found: list[Way], rounds: int) -> None:
    for _ in range(rounds):
        for way in found:
            undo = way.before()
            began = time.process_time()
            way.step()
            way.seconds.append(time.process_time() - began)
            undo()


def measure(name: str, rounds: int) -> dict[str, float]:
    """Print the rows of a family, and return the figures of its claims."""
    torch.manual_seed(0)
    lms.forget()
    model, loss = FAMILIES[name]()
    with Operations() as operations:
        trained(model, loss)
    found = ways(model, loss)
    take_turns(found, 3)
    for way in found:
        way.seconds.clear()
    take_turns(found, rounds)
    native, by_hand, *_ = found
    print(f"{name}: {operations.count} operations", flush=True)
    for way in found:
        added = (way.median - native.median) / operations.count * 1e6
        print(
            f"  {way.name:<11} {way.median * 1e3:8.2f} ms  {way.median / native.median:6.3f} of native "
            f"{way.median / by_hand.median:6.3f} of checkpoint {added:7.2f} us an operation  {way.told}",
            flush=True,
        )
    return {
        f"{name}-{way.name}": way.median / (by_hand if way.name == "peak" else native).median
        for way in found[2:]
    }


def profile(name: str, which: str) -> None:
    """Print where the time of one way goes."""
    torch.manual_seed(0)
    model, loss = FAMILIES[name]()
    (way,) = (way for way in ways(model, loss) if way.name == which)
    for _ in range(3):
        way.step()
    with cProfile.Profile() as profiler:
        for _ in range(20):
            way.step()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--profile", nargs=2, metavar=("FAMILY", "WAY"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.profile:
        profile(*asked.profile)
        return
    measured: dict[str, float] = {}
    for name in asked.families:
        measured |= measure(name, asked.rounds)
    known = {claim.name for part in claims.parts(["lms_overhead"]) for claim in part.claims}
    print("\n" + claims.report("lms_overhead", {name: measured[name] for name in measured if name in known}))


if __name__ == "__main__":
    main()
