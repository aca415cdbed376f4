"""Large model support against its goals and its rivals, many cases in one go; needs a CUDA device.

    python benchmarks/lms.py                          every case
    python benchmarks/lms.py --cases fits gpt llama   some
    python benchmarks/lms.py --out lms.txt            and write what is printed to a file, too

Times are medians of whole steps (forward and backward) by CUDA events, after the steps in which plans are made. The
peak of ours is that of every step since the first, in which nothing is known yet; others' is of the timed steps. A
smaller device is emulated with `set_per_process_memory_fraction`. Gradients are compared with deterministic kernels.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from tests.lms.families import GptBlock, LlamaBlock, ResNet, Transformer, UNet3d  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from weft import lms  # noqa: E402
from weft.errors import WeftError  # noqa: E402

GIB = 1 << 30
GB = 10**9
cuda: Any = torch.cuda
Step = Callable[[], torch.Tensor]


@dataclass
class Report:
    """Prints rows as they come, and keeps them."""

    out: Path | None
    alone: bool = False
    lines: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        print(text, flush=True)
        self.lines.append(text)
        if self.out is not None:
            self.out.write_text("\n".join(self.lines) + "\n")

    def row(
        self, case: str, way: str, peak: float, seconds: float, ratio: float, goal: str = "", note: str = ""
    ) -> None:
        self.say(
            f"{case:<26} {way:<22} {peak / GIB:7.2f} GiB {seconds * 1e3:9.1f} ms {ratio:6.3f}x {goal} {note}".rstrip()
        )


def clean() -> None:
    lms.forget()
    gc.collect()
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()


def timed(step: Callable[[], Any], rounds: int, warm: int = 2) -> tuple[float, int]:
    """The median seconds of a step, and the peak of bytes allocated meanwhile."""
    for _ in range(warm):
        step()
    cuda.synchronize()
    cuda.reset_peak_memory_stats()
    times, peak = [], 0
    for _ in range(rounds):
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
        peak = max(peak, cuda.max_memory_allocated())
    return statistics.median(times), peak


def trained(
    model: Any, forward: Step, within: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> None:
    """One step; gradients are made from nothing, unless the model says that they stay."""
    model.zero_grad(set_to_none=not getattr(model, "keeps_gradients", False))
    with within():
        torch.autograd.backward(forward())


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
    began = time.perf_counter()
    step = partial(trained, model, forward, lambda: lms.fit(limit))
    try:
        for _ in range(5):
            step()
        warm = time.perf_counter() - began
        late = lms.stats()["late"]
        pairs = [
            (timed(partial(trained, model, forward), 1, 0)[0] if turns else native_s, timed(step, 1, 0)[0])
            for _ in range(rounds)
        ]
    except (WeftError, torch.OutOfMemoryError) as error:
        report.say(f"{case:<26} ours, {limit / GIB:.1f} GiB: {type(error).__name__}: {str(error)[:300]}")
        return float("inf")
    stats, plan = lms.stats(), lms.plan()
    native_s, seconds = (statistics.median(column) for column in zip(*pairs, strict=True))
    note = (
        f"rebuilt {plan.bytes_of('recipe') / GIB:.1f}, swapped {plan.bytes_of('swap') / GIB:.1f} GiB, predicted "
        f"{plan.slowdown:.3f}x, stall {plan.timeline.stall_s * 1e3:.0f} ms, late {(stats['late'] - late) / rounds:g}, "
        f"first steps {warm:.1f} s, {'under' if stats['peak'] <= limit else 'OVER'} budget, "
        f"gradients {same(model, forward, limit)}"
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
    for parameter, expected in zip(picked(model), reference, strict=True):
        assert parameter.grad is not None
        if not torch.equal(parameter.grad, expected.to(parameter.grad.device)):
            gap = (parameter.grad - expected.to(parameter.grad.device)).float().norm()
            worst = max(worst, float(gap / expected.float().norm().clamp_min(1e-30)))
    return "bitwise equal" if worst == 0.0 else f"differ by {worst:.1e}"


def picked(model: nn.Module) -> list[nn.Parameter]:
    parameters = list(model.parameters())
    return [parameters[index] for index in sorted({0, 1, len(parameters) // 2, len(parameters) - 1})]


def remember(model: Any, forward: Step) -> None:
    """Keep some native gradients to compare with."""
    torch.use_deterministic_algorithms(True)
    deterministic: Any = torch.utils.deterministic
    deterministic.fill_uninitialized_memory = False
    trained(model, forward)
    torch.use_deterministic_algorithms(False)
    first = [parameter.grad.to("cpu") for parameter in picked(model) if parameter.grad is not None]
    model.reference = first


# The rivals, for models made of blocks.


def nothing() -> None:
    pass


def checkpointed(model: Any, blocks: nn.ModuleList, context: Any = None) -> Callable[[], None]:
    """Checkpoint each block; gives the way back."""
    originals = [block.forward for block in blocks]
    for block in blocks:
        inner = block.forward
        extra = {} if context is None else {"context_fn": context}
        block.forward = lambda x, inner=inner, extra=extra: checkpoint(inner, x, use_reentrant=False, **extra)

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


# The cases.


def squared(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = model(x).float().square().mean()
    return result


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
        ours(report, "gpt 24x2048, 16x2048", model, forward, limit * GIB, native_s, f"<= {goal:.2f}", rounds)
        report.say(lms.plan().explain(12))
    ways = ("checkpoint", "selective checkpoint", "save_on_cpu", "compile 1", "compile 0.5", "compile 0.2")
    rivals(report, "gpt 24x2048, 16x2048", model, forward, native_s, rounds, ways)


def big() -> AbstractContextManager[Any]:
    return lms.fit(100 * GIB)


def case_fits(report: Report, rounds: int) -> None:
    """What fits anyway, beside native, in turns."""
    for name, (model, forward) in {
        "gpt 12x1024, 8x1024": gpt(12, 1024, 8, 1024),
        "resnet-50, 64x224": resnet(),
    }.items():
        step, fitted_step = partial(trained, model, forward), partial(trained, model, forward, big)
        for _ in range(5):
            step()
            fitted_step()
        pairs = []
        for _ in range(5 * rounds):
            native, _ = timed(step, 1, warm=0)
            fitted, _ = timed(fitted_step, 1, warm=0)
            pairs.append((native, fitted))
        native, fitted = (statistics.median(column) for column in zip(*pairs, strict=True))
        report.row(f"fits: {name}", "ours", cuda.max_memory_allocated(), fitted, fitted / native, "<= 1.01")
        clean()


def resnet(side: int = 224, batch: int = 64) -> tuple[nn.Module, Step]:
    with torch.device("cuda"):
        model: Any = ResNet(64, (3, 4, 6, 3), 1000)
        model.to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, side, side).to(memory_format=torch.channels_last)

    def forward() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return squared(model, x)

    return model, forward


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
        ours(report, name, model, forward, limit, native_s, goal, rounds)
        rivals(report, name, model, forward, native_s, rounds, ("checkpoint", "selective checkpoint"))
        model, forward = None, None  # type: ignore[assignment]
        clean()


def unet(side: int) -> tuple[nn.Module, Step]:
    with torch.device("cuda"):
        model = UNet3d(
            4, (16, 32, 64, 128, 256), inplace=False
        )  # of 32 to 320 channels, one operation's working set is too large
        x = torch.randn(1, 4, side, side, side)

    def forward() -> torch.Tensor:
        with torch.autocast("cuda", torch.bfloat16):
            return squared(model, x)

    return model, forward


def case_unet(report: Report, rounds: int) -> None:
    for cap, side in ((16, 304), (32, 400)):
        torch.manual_seed(0)
        model, forward = unet(side)
        native_s, peak = timed(lambda: trained(model, forward), 3, warm=1)  # noqa: B023
        report.row(f"3D U-Net {side}^3", "native, whole card", peak, native_s, 1.0)
        with capped(cap * GB):
            ours(
                report,
                f"3D U-Net {side}^3, {cap} GB",
                model,
                forward,
                int(0.94 * cap * GB),
                native_s,
                "runs",
                3,
            )
        model, forward = None, None  # type: ignore[assignment]
        clean()
    model, forward = unet(256)
    native_s, peak = timed(lambda: trained(model, forward), 5, warm=2)
    report.row("3D U-Net 256^3", "native", peak, native_s, 1.0)
    ours(report, "3D U-Net 256^3, half", model, forward, peak // 2, native_s, "<= 1.3", 5)


class capped:  # noqa: N801
    """A smaller card."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> None:
        clean()
        cuda.set_per_process_memory_fraction(self.size / cuda.get_device_properties(0).total_memory)

    def __exit__(self, *_: object) -> None:
        cuda.set_per_process_memory_fraction(1.0)


def largest(fits: Callable[[int], bool], low: int, high: int, step: int) -> int:
    """The largest multiple of `step` that fits, by bisection."""
    good, bad = low // step, high // step + 1
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle * step) else (good, middle)
    return good * step


def vision_models() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    try:
        torchvision: Any = import_module("torchvision")
    except ImportError:
        yield "resnet-50", lambda: ResNet(64, (3, 4, 6, 3), 1000)
        return
    for name in ("resnet50", "resnet152", "densenet201"):
        yield name, getattr(torchvision.models, name)


def case_pixels(report: Report, rounds: int) -> None:
    """The largest picture under a cap, batch 1, channels_last, bf16 autocast: native and ours."""
    cap = 16 * GB
    for name, make in vision_models():
        found: dict[str, int] = {}
        why: dict[str, str] = {}
        for way in ("native", "ours"):

            def fits(side: int, way: str = way, make: Any = make, why: Any = why) -> bool:
                clean()
                model: Any = None
                try:
                    with torch.device("cuda"):
                        model = make().to(memory_format=torch.channels_last)
                        x = torch.randn(1, 3, side, side).to(memory_format=torch.channels_last)

                    def forward() -> torch.Tensor:
                        with torch.autocast("cuda", torch.bfloat16):
                            return squared(model, x)

                    for _ in range(2):
                        trained(
                            model,
                            forward,
                            nullcontext if way == "native" else lambda: lms.fit(int(0.94 * cap)),
                        )
                    return True
                except (torch.OutOfMemoryError, WeftError, RuntimeError) as error:
                    why[way] = f"{side} px: {type(error).__name__}: {str(error)[:220]}"
                    return False
                finally:
                    model = None

            with capped(cap):
                # From a good guess: to try a size takes seconds.
                low, high = (1024, 6144) if way == "native" else (found["native"], 4 * found["native"])
                found[way] = largest(fits, low, high, 512)
        pixels = (found["ours"] / max(1, found["native"])) ** 2
        report.say(
            f"{name}, 16 GB, batch 1: native {found['native']} px, ours {found['ours']} px a side: "
            f"{pixels:.1f} times the pixels (goal >= 10); what stopped ours: {why.get('ours', 'nothing')}"
        )


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

    best: dict[int, float] = {}
    for length in sorted(inputs):
        seconds, peak = timed(lambda: step(length, nullcontext), 2, warm=1)  # noqa: B023
        if peak > limit:
            undo = checkpointed(model, model.blocks)
            seconds, peak = timed(lambda: step(length, nullcontext), 2, warm=1)  # noqa: B023
            undo()
        best[length] = seconds
    clean()
    times = []
    for length in lengths:
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        step(length, lambda: lms.fit(limit))
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    ideal, stats = sum(best[length] for length in lengths), lms.stats()
    again = 0.0
    for length in lengths:
        seconds, _ = timed(lambda: step(length, lambda: lms.fit(limit)), 1, warm=0)  # noqa: B023
        again += seconds
    report.row(
        "100 random lengths to 16k", f"ours, {limit / GIB:.0f} GiB", stats["peak"], sum(times), sum(times) / ideal,
        "<= 1.05",
        f"second time {again / ideal:.3f}x; best fixed choice {ideal:.2f} s; {stats['recorded']} recorded, "
        f"{stats['shapes']} shapes, {stats['over']} steps over",
    )  # fmt: skip


def case_adamw(report: Report, rounds: int) -> None:
    """An 8B model with AdamW in float32, bf16 autocast, 32k tokens a step; beside SGD, which has no state."""
    batches, length = 8, 4096
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Transformer(32, lambda: LlamaBlock(4096, 32, 8, 14336), 4096, vocabulary=128256)
        x = torch.randint(128256, (1, length))
    count = sum(parameter.numel() for parameter in model.parameters())

    def step(optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad(set_to_none=True)
        for _ in range(batches):
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(x)
                loss = nn.functional.cross_entropy(logits[0, :-1], x[0, 1:])
            del logits
            torch.autograd.backward(loss)
        optimizer.step()

    def seconds(optimizer: torch.optim.Optimizer, times: int) -> float:
        found = []
        for _ in range(times):
            cuda.synchronize()
            began = time.perf_counter()
            step(optimizer)
            cuda.synchronize()
            found.append(time.perf_counter() - began)
        report.say("    steps of " + ", ".join(f"{value:.2f}" for value in found) + " s")
        return statistics.median(found[-3:])

    native = torch.optim.AdamW(model.parameters(), 1e-5)
    try:
        step(native)
        report.say(
            f"AdamW, {count / 1e9:.2f}B: native runs, peak {cuda.max_memory_allocated() / GIB:.1f} GiB"
        )
    except torch.OutOfMemoryError:
        report.say(f"AdamW, {count / 1e9:.2f}B, {batches}x{length} tokens: native runs out of memory")
    native.state.clear()
    model.zero_grad(set_to_none=True)
    clean()
    limit = 132 * GIB
    plain = torch.optim.SGD(model.parameters(), 1e-5)
    reference = model.forward
    lms.wrap(model, plain, limit=limit, page="never")
    base = seconds(plain, 4)
    report.row(f"AdamW {count / 1e9:.1f}B, 32k tokens", "SGD, no state", lms.stats()["peak"], base, 1.0)
    model.forward = reference  # type: ignore[method-assign]
    model.zero_grad(set_to_none=True)
    clean()
    paged = torch.optim.AdamW(model.parameters(), 1e-5)
    lms.wrap(model, paged, limit=limit, page="always")
    took = seconds(paged, 6)
    stats = lms.stats()
    report.row(
        f"AdamW {count / 1e9:.1f}B, 32k tokens", "ours, state paged", stats["peak"], took, took / base, "<= 1.10",
        f"pinned {stats['pinned'] / GIB:.0f} GiB, {lms.plan().summary()}",
    )  # fmt: skip


CASES: dict[str, Callable[[Report, int], None]] = {
    "fits": case_fits,
    "gpt": case_gpt,
    "llama": case_llama,
    "unet": case_unet,
    "pixels": case_pixels,
    "lengths": case_lengths,
    "adamw": case_adamw,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--alone", action="store_true", help="without the rivals")
    asked = parser.parse_args()
    report = Report(asked.out, asked.alone)
    report.say(
        f"{date.today()}, {cuda.get_device_name()}, {os.cpu_count()} cores, torch {torch.__version__}, Python "
        f"{platform.python_version()}: python benchmarks/lms.py {' '.join(sys.argv[1:])}"
    )
    for name in asked.cases:
        began = time.perf_counter()
        try:
            CASES[name](report, asked.rounds)
        except Exception as error:
            import traceback

            traceback.print_exc()
            report.say(f"{name}: {type(error).__name__}: {str(error)[:300]}")
        report.say(f"({name}: {time.perf_counter() - began:.0f} s)")
        clean()


if __name__ == "__main__":
    main()
