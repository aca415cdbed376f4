"""Strategies of a training, as these clients write them, become configurations: networks, iterations, rates. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.jobs.doors.access import DoorError

_USAGES = {"cic": "classification", "cod": "detection", "anomaly": "anomaly"}
_BATCH = 16  # pictures of one of IBM's iterations
_EARLY_STOP = 5  # evaluations without a better score
_SEGMENTS = frozenset({"frcnn_mrcnn", "mrcnn", "detectron"})


def training_config(body: Mapping[str, Any], pictures: int) -> tuple[str | None, str | None, dict[str, Any]]:
    """Return task, network and configuration; `pictures` turn iterations into epochs."""
    usage, arch = str(body.get("usage") or ""), str(body.get("nn_arch") or "")
    if usage and usage not in _USAGES:
        raise DoorError("bad", f"usage must be cic, cod, act or anomaly, got {usage[:40]!r}")
    strategy = body.get("strategy") or {}
    if not isinstance(strategy, Mapping):
        raise DoorError("bad", "strategy must be an object, got another value; leave it out")
    task = _USAGES.get(usage)
    segments = any(_is_on(strategy.get(name)) for name in ("segmentation", "segmentation_flag"))
    if arch.lower() in _SEGMENTS or segments:
        task = "segmentation"
    config: dict[str, Any] = {}
    schedule: dict[str, Any] = {}
    iterations = _number(strategy, "max_iter", 1, 10_000_000) or _number(
        strategy, "iterations", 1, 10_000_000
    )
    if iterations is not None:
        schedule["epochs"] = max(1.0, round(iterations * _BATCH / max(1, pictures), 2))
    if (epochs := _number(strategy, "epochs", 0, 1e6)) is not None:
        schedule["epochs"] = epochs
    optimizer: dict[str, Any] = {}
    rate = _number(strategy, "learning_rate", 0, 1)
    if rate is not None:
        optimizer |= {"name": "sgd", "lr": rate}
    for theirs in ("weight_decay", "momentum"):
        if (value := _number(strategy, theirs, 0, 0.9999)) is not None:
            optimizer[theirs] = value
    if any(_is_on(strategy.get(name)) for name in ("autoearlystop_flag", "autoearlystop")):
        schedule["early_stop"] = _EARLY_STOP
    if schedule:
        config["schedule"] = schedule
    if optimizer:
        config["optimizer"] = optimizer
    return task, arch or None, config


def _is_on(value: Any) -> bool:
    return str(value).lower() in ("1", "true", "yes")


def _number(strategy: Mapping[str, Any], name: str, least: float, most: float) -> float | None:
    """Return a number of a strategy, which clients write as numbers or as text."""
    given = strategy.get(name)
    if given is None or given == "":
        return None
    try:
        value = float(given)
    except (TypeError, ValueError):
        value = float("nan")
    if not least <= value <= most:
        raise DoorError("bad", f"strategy.{name} must be a number from {least:g} to {most:g}, got {given!r}")
    return value
