"""Pictures and volumes: what fits anyway, a 3D U-Net under the memory of a smaller card, the largest picture."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from importlib import import_module
from typing import Any

import torch
from benchmarks.lms_harness.measure import (
    GB,
    GIB,
    Report,
    Step,
    capped,
    clean,
    cuda,
    in_a_row,
    ours,
    squared,
    timed,
    trained,
)
from benchmarks.lms_harness.text import gpt
from testing.families import ResNet, UNet3d
from torch import nn

from weft import lms
from weft.errors import WeftError
from weft.lms.device.available import available_host_bytes

STEPS = 12  # that fit, a turn


def big() -> AbstractContextManager[Any]:
    return lms.fit(100 * GIB)


def case_fits(report: Report, rounds: int) -> None:
    """What fits anyway, beside native, in turns: steps that are as long as their launching, and one that is not."""
    cases: dict[str, tuple[str, Callable[[], tuple[nn.Module, Step]], int]] = {
        "gpt 12x1024, 8x1024": ("fits-gpt", lambda: gpt(12, 1024, 8, 1024), 4 * rounds),
        "resnet-50, 64x224": ("fits-resnet", resnet, 4 * rounds),
        "gpt 24x2048, 16x2048": ("fits-large", gpt, max(1, rounds // 2)),
    }
    for name, (claim, make, turns) in cases.items():
        model, forward = make()
        step, fitted_step = partial(trained, model, forward), partial(trained, model, forward, big)
        ways = (step, fitted_step)
        for _ in range(5):
            step()
            fitted_step()
        found: tuple[list[float], list[float]] = [], []
        for turn in range(turns):  # who comes second finds a warmer card
            for index in (turn % 2, 1 - turn % 2):
                found[index].extend(in_a_row([ways[index]] * STEPS))
        native, fitted = map(statistics.median, found)
        report.row(f"fits: {name}", "ours", cuda.max_memory_allocated(), fitted, fitted / native, "<= 1.01")
        report.claim(claim, fitted / native)
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
            ratio = ours(
                report,
                f"3D U-Net {side}^3, {cap} GB",
                model,
                forward,
                int(0.94 * cap * GB),
                native_s,
                "runs",
                3,
                turns=False,  # a native step does not fit
            )
        report.claim(f"unet-{side}", ratio)
        model, forward = None, None  # type: ignore[assignment]
        clean()
    model, forward = unet(256)
    native_s, peak = timed(lambda: trained(model, forward), 5, warm=2)
    report.row("3D U-Net 256^3", "native", peak, native_s, 1.0)
    ratio = ours(report, "3D U-Net 256^3, half", model, forward, peak // 2, native_s, "<= 1.3", 5)
    report.claim("unet-half", ratio)


def largest(fits: Callable[[int], bool], guess: int, step: int) -> int:
    """The largest size that fits, to a step: away from a guess in growing steps, and back by bisection."""
    up, jump = fits(guess), 2 * step
    while up == fits(guess + (jump if up else -jump)):
        guess += jump if up else -jump
        jump *= 2
    good, bad = (guess, guess + jump) if up else (guess - jump, guess)
    while bad - good > step:
        middle = (good + bad) // 2 // step * step
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


STEP = 128  # pixels a side
# To try a size takes seconds. Sides to begin with natively, and how many times as many pixels to begin with in ours.
GUESSES = {"densenet201": (2560, 10), "resnet152": (2816, 10), "resnet50": (4096, 5.6)}


def vision_models() -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    try:
        torchvision: Any = import_module("torchvision")
    except ImportError:
        yield "resnet50", lambda: ResNet(64, (3, 4, 6, 3), 1000)
        return
    for name in GUESSES:
        yield name, getattr(torchvision.models, name)


def case_pixels(report: Report, rounds: int) -> None:
    """The largest picture under a cap, batch 1, channels_last, bf16 autocast: native and ours."""
    cap = 16 * GB
    # More of the host's memory than anyone should take who has other plans for the machine.
    host = int(0.92 * available_host_bytes())
    for name, make in vision_models():
        found: dict[str, int] = {}
        why: dict[str, str] = {}
        for way in ("native", "ours"):

            def fits(side: int, name: str = name, way: str = way, make: Any = make, why: Any = why) -> bool:
                clean()
                model: Any = None
                print(f"    {name}, {way}: {side} px", file=sys.stderr, flush=True)
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
                            nullcontext if way == "native" else lambda: lms.fit(int(0.94 * cap), host),
                        )
                    return True
                except (torch.OutOfMemoryError, WeftError, RuntimeError) as error:
                    why[way] = f"{side} px: {type(error).__name__}: {str(error)[:220]}"
                    return False
                finally:
                    model = None

            guess, times = GUESSES[name]
            if way == "ours":
                guess = int(found["native"] * times**0.5 + STEP - 1) // STEP * STEP
            with capped(cap):
                found[way] = largest(fits, guess, STEP)
        pixels = (found["ours"] / max(1, found["native"])) ** 2
        report.claim(name.replace("net", "net-"), pixels)
        report.say(
            f"{name}, 16 GB, batch 1: native {found['native']} px, ours {found['ours']} px a side: "
            f"{pixels:.1f} times the pixels (goal >= 10); what stopped ours: {why.get('ours', 'nothing')}"
        )
