"""The environment of a worker: torchrun's variables, ours, and those that keep a machine from fighting itself."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from pathlib import Path

from weft.collectives.watching.settings import watching_from_env
from weft.launch.config import LaunchConfig
from weft.topology.dimensions import Dimensions
from weft.topology.placement import Placement

Variables = tuple[tuple[str, str], ...]
PLAN_VARIABLE = "WEFT_PLAN"  # a plan file's text, compressed: the file is on this machine alone
RECORDING_VARIABLE = "WEFT_RECORDING"  # set while a script is recorded for a plan


def common_variables(
    config: LaunchConfig,
    carried: Mapping[str, str],
    *,
    leader: str,
    port: int,
    dimensions: Dimensions,
) -> Variables:
    """Return what every worker gets. Later groups win: defaults, then the caller's, then the run's, then `--env`."""
    defaults = {"PYTHONUNBUFFERED": "1"}
    if config.tcp:
        defaults["NCCL_IB_DISABLE"] = "1"
    bin_folder = str(Path(config.python).parent) if config.python else ""
    path = {"PATH": f"{bin_folder}:{carried['PATH']}"} if bin_folder and "PATH" in carried else {}
    run = {
        "MASTER_ADDR": leader,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
        "WEFT_DIMENSIONS": str(dimensions),
    }
    if config.mode is not None:
        run["WEFT_MODE"] = config.mode
    if config.wire is not None:
        run["WEFT_WIRE"] = config.wire
    if config.parallel_plan is not None:
        run[PLAN_VARIABLE] = base64.b64encode(zlib.compress(config.parallel_plan.encode())).decode()
    if config.replace is not None:
        run["WEFT_REPLACE"] = config.replace
    if config.tcp:
        run["WEFT_TCP"] = "1"
    run |= watching_variables(config)
    everything = {**defaults, **carried, **path, **run, **dict(config.env)}
    watching_from_env(everything)  # refuses what no worker could read
    return tuple(sorted(everything.items()))


def watching_variables(config: LaunchConfig) -> dict[str, str]:
    """Return what of the collectives is to be watched."""
    asked = {
        "WEFT_REPORT": config.report,
        "WEFT_TRACE": config.trace and (config.cwd / config.trace).absolute(),
        "WEFT_VERIFY": config.verify,
        "WEFT_DEBUG": int(config.debug),
    }
    return {name: str(value) for name, value in asked.items() if value}


def worker_variables(
    *,
    rank: int,
    world: int,
    local_rank: int,
    local_world: int,
    host: str,
    host_index: int,
    host_count: int,
    placement: Placement | None,
    interface: str | None = None,
    place: tuple[int, int] | None = None,
    chosen: Mapping[str, str] | None = None,
) -> Variables:
    """Return what one worker gets: who it is, as torchrun names it; how many threads fit; which card to use.

    Threads and cards that the caller has `chosen` already stay as they are.
    """
    variables: dict[str, str | int] = {
        "RANK": rank,
        "WORLD_SIZE": world,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": local_world,
        "GROUP_RANK": host_index,
        "GROUP_WORLD_SIZE": host_count,
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "WEFT_HOST": host,
        "WEFT_HOST_INDEX": host_index,
        "WEFT_NUM_HOSTS": host_count,
    }
    variables |= {  # scripts of Horovod read these before they call hvd.init()
        "HOROVOD_RANK": rank,
        "HOROVOD_SIZE": world,
        "HOROVOD_LOCAL_RANK": local_rank,
        "HOROVOD_LOCAL_SIZE": local_world,
        "HOROVOD_CROSS_RANK": host_index,
        "HOROVOD_CROSS_SIZE": host_count,
        "HOROVOD_HOSTNAME": host,
    }
    if place is not None:  # only where racks were declared: the dimensions of a mode may do so, too
        variables |= {"WEFT_RACK": place[0], "WEFT_AISLE": place[1]}
    fitting = {**thread_variables(placement), **network_variables(interface)}
    variables |= {name: value for name, value in fitting.items() if name not in (chosen or {})}
    return tuple((name, str(value)) for name, value in variables.items())


def thread_variables(placement: Placement | None) -> dict[str, str | int]:
    """Return the variables of thread counts that fit the worker's cores."""
    if placement is None:
        return {}
    threads: dict[str, str | int] = {
        "OMP_NUM_THREADS": placement.threads,
        "TF_NUM_INTRAOP_THREADS": placement.threads,  # TensorFlow has threads of its own
        # So has JAX; a call out of a compiled step holds one, and a second one brings its arrays.
        "PJRT_NPROC": max(2, placement.threads),
    }
    if placement.shared:
        # A thread that spins while it waits takes the core its neighbour needs; on two shared cores that
        # slowed a small training twentyfold.
        threads["OMP_WAIT_POLICY"] = "PASSIVE"
    return threads


def network_variables(interface: str | None) -> dict[str, str]:
    """Tell Gloo and NCCL which card to use, each in its own syntax ('=' makes NCCL match exactly)."""
    if interface is None:
        return {}
    return {
        "GLOO_SOCKET_IFNAME": interface,
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "TP_SOCKET_IFNAME": interface,
    }
