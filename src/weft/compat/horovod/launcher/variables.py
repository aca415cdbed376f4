"""The variables of workers that flags of `horovodrun` stand for, those that mean nothing here among them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from weft.compat.horovod.launcher.command import settings_of

_DECIDED = {
    "HIERARCHICAL_ALLREDUCE": "hierarchical_allreduce",
    "HIERARCHICAL_ALLGATHER": "hierarchical_allgather",
    "TORUS_ALLREDUCE": "torus_allreduce",
    "AUTOTUNE": "autotune",
    "AUTOTUNE_LOG": "autotune_log_file",
    "AUTOTUNE_WARMUP_SAMPLES": "autotune_warmup_samples",
    "AUTOTUNE_STEPS_PER_SAMPLE": "autotune_steps_per_sample",
    "AUTOTUNE_BAYES_OPT_MAX_SAMPLES": "autotune_bayes_opt_max_samples",
    "AUTOTUNE_GAUSSIAN_PROCESS_NOISE": "autotune_gaussian_process_noise",
    "MPI_THREADS_DISABLE": "mpi_threads_disable",
    "NUM_NCCL_STREAMS": "num_nccl_streams",
    "THREAD_AFFINITY": "thread_affinity",
}
_SETTINGS = (
    "FUSION_THRESHOLD",
    "CYCLE_TIME",
    "CACHE_CAPACITY",
    "TIMELINE",
    "TIMELINE_MARK_CYCLES",
    "STALL_CHECK_DISABLE",
    "STALL_CHECK_TIME_SECONDS",
    "STALL_SHUTDOWN_TIME_SECONDS",
    "GLOO_TIMEOUT_SECONDS",
    "LOG_LEVEL",
    "LOG_HIDE_TIME",
)
NAMES = tuple(f"HOROVOD_{name}" for name in (*_SETTINGS, *_DECIDED))


def set_env_from_args(env: MutableMapping[str, str], args: Any) -> MutableMapping[str, str]:
    """Put the variables that flags stand for among others; those of flags that were not given are left alone."""
    found: dict[str, Any] = dict(settings_of(args))
    found |= {name: getattr(args, flag) for name, flag in _DECIDED.items()}
    if args.log_with_timestamp is not None:
        found["LOG_HIDE_TIME"] = not args.log_with_timestamp
    for name, value in found.items():
        if value is not None:
            env[f"HOROVOD_{name}"] = str(int(value) if isinstance(value, bool) else value)
    return env
