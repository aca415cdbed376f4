"""The flags of `horovodrun`: a parser, and what of them a configuration file may say."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from weft.documents import read_text
from weft.errors import UsageError


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are ours."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"horovodrun: {message}; see horovodrun --help")


def parser() -> argparse.ArgumentParser:
    """Return the parser of `horovodrun`'s command line."""
    made = _Parser(
        prog="horovodrun",
        description="Run a script written for Horovod, by weft run.",
        allow_abbrev=False,
        epilog="Everything after the flags is the command: horovodrun -np 2 python train.py",
    )
    add = made.add_argument
    add("-v", "--version", action="store_true", help="print the version of the interface")
    add("-cb", "--check-build", action="store_true", help="print what there is")
    add(
        "-np",
        "--num-proc",
        type=int,
        metavar="N",
        help="workers in all; with elastic flags, those to wait for first",
    )
    add("-H", "--hosts", metavar="a:4,b:4", help="hosts and how many workers each may have")
    add("-hostfile", "--hostfile", metavar="FILE", help="hosts, one a line: host slots=4")
    add(
        "--network-interface",
        "--network-interfaces",
        dest="interface",
        action="append",
        metavar="CARD",
        help="network card to use; of several, the first",
    )
    add("--output-filename", metavar="DIR", help="folder of the run, with rank-N.log for each rank")
    add("--config-file", metavar="FILE", help="flags in a YAML file; the command line wins")
    add("--verbose", action="store_true", help="show the checks and the commands")
    add("--start-timeout", type=float, metavar="S", help="seconds for all ranks to come to hvd.init()")
    add("--tcp", dest="tcp_flag", action="store_true", help="keep to TCP")
    add("--gloo", dest="use_gloo", action="store_true", help="nothing to choose: Weft has one transport")
    add("--mpi", dest="use_mpi", action="store_true", help="start workers by mpirun")
    add("--mpi-args", metavar="ARGS", help="arguments of mpirun, with --mpi")
    add("--jsrun", dest="use_jsrun", action="store_true", help="refused")
    add("-p", "--ssh-port", type=int, help="refused: belongs into ~/.ssh/config")
    add("-i", "--ssh-identity-file", help="refused: belongs into ~/.ssh/config")
    elastic = made.add_argument_group("elastic runs").add_argument
    elastic("--min-np", "--min-num-proc", type=int, metavar="N", help="workers that are enough to go on")
    elastic("--max-np", "--max-num-proc", type=int, metavar="N", help="workers that the run uses at most")
    elastic("--host-discovery-script", metavar="COMMAND", help="prints host:slots, one a line")
    elastic("--slots-per-host", "--slots", type=int, metavar="N", help="workers on each host")
    elastic("--elastic-timeout", type=float, metavar="S", help="seconds to wait for --min-np workers")
    elastic("--reset-limit", type=int, metavar="N", help="end the run when members change more often")
    elastic(
        "--blacklist-cooldown-range",
        "--cooldown-range",
        type=int,
        nargs=2,
        metavar=("A", "B"),
        help="seconds for which a host is not used after a worker failed there: A, doubled each time up to B",
    )
    knobs = made.add_argument_group("settings of workers").add_argument
    for flag, name, kind in KNOBS:
        knobs(flag, dest=name, type=kind, metavar=name.rpartition("_")[2].upper())
    knobs("--timeline-mark-cycles", action=argparse.BooleanOptionalAction)
    knobs(
        "--stall-check",
        action=argparse.BooleanOptionalAction,
        help="warn of ranks that do not come (the default)",
    )
    knobs("--disable-cache", action="store_true", help="no effect")
    other = made.add_argument_group("accepted: Weft decides this itself").add_argument
    for flag in DECIDED_FLAGS:
        other(flag, nargs="?", const="1", metavar="X")
    for flag in DECIDED_SWITCHES:
        other(flag, action=argparse.BooleanOptionalAction)
    other("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true")
    other("--log-without-timestamp", dest="log_with_timestamp", action="store_false", default=None)
    add("command", nargs=argparse.REMAINDER, help="the command of a worker")
    return made


# flag, HOROVOD_ variable, type
KNOBS: tuple[tuple[str, str, Any], ...] = (
    ("--fusion-threshold-mb", "fusion_threshold_mb", float),
    ("--cycle-time-ms", "cycle_time", float),
    ("--cache-capacity", "cache_capacity", int),
    ("--timeline-filename", "timeline", str),
    ("--stall-check-warning-time-seconds", "stall_check_time_seconds", float),
    ("--stall-check-shutdown-time-seconds", "stall_shutdown_time_seconds", float),
    ("--gloo-timeout-seconds", "gloo_timeout_seconds", float),
    ("--log-level", "log_level", str),
)
DECIDED_FLAGS = {
    "--autotune-log-file": "nothing is tuned by trial",
    "--autotune-warmup-samples": "nothing is tuned by trial",
    "--autotune-steps-per-sample": "nothing is tuned by trial",
    "--autotune-bayes-opt-max-samples": "nothing is tuned by trial",
    "--autotune-gaussian-process-noise": "nothing is tuned by trial",
    "--num-nccl-streams": "Weft's backend has its own streams",
    "--thread-affinity": "workers are bound to their cores by weft run",
    "--binding-args": "workers are bound to their cores by weft run",
}
DECIDED_SWITCHES = {
    "--mpi-threads-disable": "no MPI is used by workers",
    "--autotune": "nothing is tuned by trial",
    "--hierarchical-allreduce": "reductions follow the hosts always (weft run --mode)",
    "--hierarchical-allgather": "reductions follow the hosts always (weft run --mode)",
    "--torus-allreduce": "reductions follow the hosts always (weft run --mode)",
    "--log-with-timestamp": "lines have the rank before them",
    "--log-hide-timestamp": "lines have the rank before them",
}
# Keys of a configuration file, section by section: the flags they stand for.
CONFIG_KEYS = {
    ("verbose",): "verbose",
    ("tensor-fusion", "threshold-mb"): "fusion_threshold_mb",
    ("tensor-fusion", "threshold"): "fusion_threshold_mb",
    ("tensor-fusion", "cycle-time-ms"): "cycle_time",
    ("params", "fusion-threshold-mb"): "fusion_threshold_mb",
    ("params", "cycle-time-ms"): "cycle_time",
    ("params", "cache-capacity"): "cache_capacity",
    ("params", "hierarchical-allreduce"): "hierarchical_allreduce",
    ("params", "hierarchical-allgather"): "hierarchical_allgather",
    ("params", "torus-allreduce"): "torus_allreduce",
    ("autotune", "enabled"): "autotune",
    ("timeline", "filename"): "timeline",
    ("timeline", "mark-cycles"): "timeline_mark_cycles",
    ("stall-check", "enabled"): "stall_check",
    ("stall-check", "warning-time-seconds"): "stall_check_time_seconds",
    ("stall-check", "shutdown-time-seconds"): "stall_shutdown_time_seconds",
    ("library-options", "mpi-threads-disable"): "mpi_threads_disable",
    ("library-options", "mpi-args"): "mpi_args",
    ("library-options", "num-nccl-streams"): "num_nccl_streams",
    ("library-options", "thread-affinity"): "thread_affinity",
    ("library-options", "gloo-timeout-seconds"): "gloo_timeout_seconds",
    ("library-options", "binding-args"): "binding_args",
    ("logging", "level"): "log_level",
    ("logging", "hide-timestamp"): "log_with_timestamp",
}


def read_config(path: str) -> dict[str, Any]:
    """Return the flags that a YAML file sets, by their names."""
    try:
        import yaml
    except ImportError:
        raise UsageError("--config-file needs PyYAML, got none; pip install pyyaml") from None
    try:
        data = yaml.safe_load(read_text(Path(path), error=UsageError)) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"{path} must be YAML, got {error}") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path} must have keys and values, got {type(data).__name__}")
    found: dict[str, Any] = {}
    for keys, value in _leaves(data):
        name = CONFIG_KEYS.get(keys)
        if name is None:
            known = ", ".join(".".join(each) for each in CONFIG_KEYS)
            raise UsageError(f"{path}: a key must be one of {known}, got {'.'.join(keys)}")
        found[name] = value
    return found


def _leaves(data: Mapping[str, Any], before: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Return the values of nested sections, with their keys."""
    found = []
    for key, value in data.items():
        keys = (*before, str(key).replace("_", "-"))
        found += _leaves(value, keys) if isinstance(value, dict) else [(keys, value)]
    return found
