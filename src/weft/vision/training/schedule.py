"""The rate and the input's size at each moment of a training, as pure functions."""

from __future__ import annotations

import math

from weft.vision.config.schema import ScheduleConfig


def rate_factor(schedule: ScheduleConfig, progress: float) -> float:
    """Return the rate in times of the highest; `progress` is the share of the training that is done."""
    if progress < schedule.warmup:
        return schedule.start + (1 - schedule.start) * progress / schedule.warmup
    rest = min(1.0, (progress - schedule.warmup) / max(1e-9, 1 - schedule.warmup))
    if schedule.shape == "constant":
        return 1.0
    if schedule.shape == "linear":
        return 1 + (schedule.final - 1) * rest
    if schedule.shape == "steps":
        return float(schedule.final ** (math.floor(rest * 3) / 2)) if rest < 1 else schedule.final
    return schedule.final + (1 - schedule.final) * 0.5 * (1 + math.cos(math.pi * rest))


def input_size(
    schedule: ScheduleConfig, full: tuple[int, int], progress: float, multiple: int = 32
) -> tuple[int, int]:
    """Return height and width of the input now: a share of the full ones, in whole multiples."""
    if not schedule.sizes:
        return full
    share = schedule.sizes[min(len(schedule.sizes) - 1, int(progress * len(schedule.sizes)))]
    if share == 1:
        return full
    return tuple(max(multiple, round(side * share / multiple) * multiple) for side in full)  # type: ignore[return-value]
