"""Settings of Horovod's scripts: the HOROVOD_* variables that are honoured, and those that something else decides.

Read once, at `hvd.init()`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from weft.errors import UsageError

DYNAMIC_TIMELINE = "DYNAMIC"
LOG_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}

# What Horovod tunes by hand or by search, and who decides it here.
DECIDED_ELSEWHERE = {
    "HOROVOD_AUTOTUNE": "HOROVOD_FUSION_THRESHOLD and HOROVOD_CYCLE_TIME, which are not tuned by trial,",
    "HOROVOD_HIERARCHICAL_ALLREDUCE": "the backend's mode, which follows the hosts (weft run --mode)",
    "HOROVOD_HIERARCHICAL_ALLGATHER": "the backend's mode, which follows the hosts (weft run --mode)",
    "HOROVOD_TORUS_ALLREDUCE": "the backend's mode, which follows the hosts (weft run --mode)",
    "HOROVOD_CPU_OPERATIONS": "Weft's backend",
    "HOROVOD_CONTROLLER": "Weft's own negotiation over TCP",
    "HOROVOD_THREAD_AFFINITY": "weft run, which binds workers to cores (--no-pin)",
    "HOROVOD_NUM_NCCL_STREAMS": "Weft's backend",
}


@dataclass(frozen=True, kw_only=True)
class HorovodSettings:
    """The settings of one world."""

    fusion_bytes: int = 128 << 20
    cycle_s: float = 0.001  # for which requests are gathered before they are sent
    cache_capacity: int = 1024  # names that travel as numbers
    timeline: str = ""  # a file; DYNAMIC: whenever the script says so; empty: none
    mark_cycles: bool = False
    stall_warn_s: float = 60.0  # 0: never
    stall_shutdown_s: float = 0.0  # 0: never
    timeout_s: float = 300.0  # of one operation's data
    start_timeout_s: float = 300.0  # for all ranks to come to init
    interface: str = ""  # a network card
    dynamic_sets: bool = False  # process sets may be added and removed after init
    elastic_timeout_s: float = 600.0  # to wait for enough workers
    reset_limit: int | None = None  # changes of an elastic run's members
    log_level: int | None = None

    def __post_init__(self) -> None:
        for name in ("fusion_bytes", "cycle_s", "cache_capacity", "stall_warn_s", "stall_shutdown_s"):
            if not getattr(self, name) >= 0:  # NaN is not
                raise UsageError(
                    f"{name} must not be negative, got {getattr(self, name)}; mend HOROVOD_ variables"
                )


def settings_from(environ: Mapping[str, str]) -> HorovodSettings:
    """Read the settings of this process."""
    level = environ.get("HOROVOD_LOG_LEVEL", "").lower()
    if level and level not in LOG_LEVELS:
        raise UsageError(f"HOROVOD_LOG_LEVEL must be one of {', '.join(LOG_LEVELS)}, got {level!r}")
    given: dict[str, Any] = {
        "fusion_bytes": _number(environ, "FUSION_THRESHOLD", int, 1),
        "cycle_s": _number(environ, "CYCLE_TIME", float, 0.001),  # milliseconds
        "cache_capacity": _number(environ, "CACHE_CAPACITY", int, 1),
        "stall_warn_s": _number(environ, "STALL_CHECK_TIME_SECONDS", float, 1),
        "stall_shutdown_s": _number(environ, "STALL_SHUTDOWN_TIME_SECONDS", float, 1),
        "timeout_s": _number(environ, "GLOO_TIMEOUT_SECONDS", float, 1),
        "start_timeout_s": _number(environ, "START_TIMEOUT", float, 1),
        "elastic_timeout_s": _number(environ, "ELASTIC_TIMEOUT", float, 1),
        "reset_limit": _number(environ, "ELASTIC_RESET_LIMIT", int, 1),
        "log_level": LOG_LEVELS.get(level),
    }
    if _true(environ, "STALL_CHECK_DISABLE"):
        given["stall_warn_s"] = 0.0
    return HorovodSettings(
        timeline=environ.get("HOROVOD_TIMELINE", ""),
        mark_cycles=_true(environ, "TIMELINE_MARK_CYCLES"),
        interface=environ.get("HOROVOD_GLOO_IFACE", "").split(",")[0],
        dynamic_sets=_true(environ, "DYNAMIC_PROCESS_SETS"),
        **{name: value for name, value in given.items() if value is not None},
    )


def decided_elsewhere(environ: Mapping[str, str]) -> list[str]:
    """Return a sentence for each variable that is set and means nothing here: who decides it."""
    return [
        f"{name}: {who} decides this"
        for name, who in DECIDED_ELSEWHERE.items()
        if environ.get(name, "").lower() not in ("", "0", "false")
    ]


def _true(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(f"HOROVOD_{name}", "").lower() not in ("", "0", "false", "no")


def _number(
    environ: Mapping[str, str], name: str, kind: type[int] | type[float], unit: float
) -> int | float | None:
    text = environ.get(f"HOROVOD_{name}", "")
    if not text:
        return None
    try:
        return kind(float(text) * unit)
    except (ValueError, OverflowError):
        raise UsageError(f"HOROVOD_{name} must be a number, got {text!r}; unset it for the default") from None
