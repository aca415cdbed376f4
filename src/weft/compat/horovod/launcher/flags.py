"""The flags of `horovodrun`: a parser, and what of them a configuration file may say."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
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
        dest="nics",
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
    elastic(
        "--min-np",
        "--min-num-proc",
        dest="min_num_proc",
        type=int,
        metavar="N",
        help="workers that are enough to go on",
    )
    elastic(
        "--max-np",
        "--max-num-proc",
        dest="max_num_proc",
        type=int,
        metavar="N",
        help="workers that the run uses at most",
    )
    elastic("--host-discovery-script", metavar="COMMAND", help="prints host:slots, one a line")
    elastic("--slots-per-host", "--slots", dest="slots", type=int, metavar="N", help="workers on each host")
    elastic("--elastic-timeout", type=float, metavar="S", help="seconds to wait for --min-np workers")
    elastic("--reset-limit", type=int, metavar="N", help="end the run when members change more often")
    elastic(
        "--blacklist-cooldown-range",
        "--cooldown-range",
        dest="cooldown_range",
        type=int,
        nargs=2,
        metavar=("A", "B"),
        help="seconds for which a host is not used after a worker failed there: A, doubled each time up to B",
    )
    knobs = made.add_argument_group("settings of workers").add_argument
    for name, _, kind in KNOBS:
        knobs(f"--{name.replace('_', '-')}", type=kind, metavar=name.rpartition("_")[2].upper())
    knobs("--timeline-mark-cycles", action=argparse.BooleanOptionalAction)
    knobs("--no-stall-check", action="store_const", const=True, help="do not warn of ranks that do not come")
    knobs(
        "--stall-check",
        dest="no_stall_check",
        action="store_const",
        const=False,
        help="warn of ranks that do not come (the default)",
    )
    knobs("--disable-cache", action="store_true", help="no effect")
    other = made.add_argument_group("accepted: Weft decides this itself").add_argument
    for flag, (kind, _) in DECIDED_FLAGS.items():
        other(flag, type=kind, metavar="X")
    for flag in DECIDED_SWITCHES:
        other(flag, action=argparse.BooleanOptionalAction)
    other("-prefix-timestamp", "--prefix-output-with-timestamp", action="store_true")
    for flag, stamped in TIMESTAMP_FLAGS.items():
        other(flag, dest="log_with_timestamp", action="store_const", const=stamped)
    add("command", nargs=argparse.REMAINDER, help="the command of a worker")
    return made


def number(text: Any) -> int | float:
    """Return a number, whole where it is written so."""
    value = float(text)
    return int(value) if str(text).strip().lstrip("+-").isdecimal() else value


# Settings of workers: the flag's name, the HOROVOD_ variable that it sets, its type.
KNOBS: tuple[tuple[str, str, Any], ...] = (
    ("fusion_threshold_mb", "FUSION_THRESHOLD", float),
    ("cycle_time_ms", "CYCLE_TIME", float),
    ("cache_capacity", "CACHE_CAPACITY", int),
    ("timeline_filename", "TIMELINE", str),
    ("stall_check_warning_time_seconds", "STALL_CHECK_TIME_SECONDS", number),
    ("stall_check_shutdown_time_seconds", "STALL_SHUTDOWN_TIME_SECONDS", number),
    ("gloo_timeout_seconds", "GLOO_TIMEOUT_SECONDS", number),
    ("log_level", "LOG_LEVEL", str),
)
_TRIED = "nothing is tuned by trial"
_BOUND = "workers are bound to their cores by weft run"
DECIDED_FLAGS: dict[str, tuple[Any, str]] = {
    "--autotune-log-file": (str, _TRIED),
    "--autotune-warmup-samples": (int, _TRIED),
    "--autotune-steps-per-sample": (int, _TRIED),
    "--autotune-bayes-opt-max-samples": (int, _TRIED),
    "--autotune-gaussian-process-noise": (float, _TRIED),
    "--num-nccl-streams": (int, "Weft's backend has its own streams"),
    "--thread-affinity": (int, _BOUND),
    "--binding-args": (str, _BOUND),
}
DECIDED_SWITCHES = {
    "--mpi-threads-disable": "no MPI is used by workers",
    "--autotune": _TRIED,
    "--hierarchical-allreduce": "reductions follow the hosts always (weft run --mode)",
    "--hierarchical-allgather": "reductions follow the hosts always (weft run --mode)",
    "--torus-allreduce": "reductions follow the hosts always (weft run --mode)",
}
TIMESTAMP_FLAGS = {
    "--log-with-timestamp": True,
    "--log-without-timestamp": False,
    "--log-hide-timestamp": False,
    "--no-log-hide-timestamp": True,
}
# Keys of a configuration file, section by section: the flags they stand for.
CONFIG_KEYS = {
    ("verbose",): "verbose",
    ("controller",): "controller",
    ("tensor-fusion", "threshold-mb"): "fusion_threshold_mb",
    ("tensor-fusion", "threshold"): "fusion_threshold_mb",
    ("tensor-fusion", "cycle-time-ms"): "cycle_time_ms",
    ("params", "fusion-threshold-mb"): "fusion_threshold_mb",
    ("params", "cycle-time-ms"): "cycle_time_ms",
    ("params", "cache-capacity"): "cache_capacity",
    ("params", "hierarchical-allreduce"): "hierarchical_allreduce",
    ("params", "hierarchical-allgather"): "hierarchical_allgather",
    ("params", "torus-allreduce"): "torus_allreduce",
    ("autotune", "enabled"): "autotune",
    ("autotune", "log-file"): "autotune_log_file",
    ("autotune", "warmup-samples"): "autotune_warmup_samples",
    ("autotune", "steps-per-sample"): "autotune_steps_per_sample",
    ("autotune", "bayes-opt-max-samples"): "autotune_bayes_opt_max_samples",
    ("autotune", "gaussian-process-noise"): "autotune_gaussian_process_noise",
    ("timeline", "filename"): "timeline_filename",
    ("timeline", "mark-cycles"): "timeline_mark_cycles",
    ("stall-check", "enabled"): "stall_check",
    ("stall-check", "warning-time-seconds"): "stall_check_warning_time_seconds",
    ("stall-check", "shutdown-time-seconds"): "stall_check_shutdown_time_seconds",
    ("library-options", "mpi-threads-disable"): "mpi_threads_disable",
    ("library-options", "mpi-args"): "mpi_args",
    ("library-options", "num-nccl-streams"): "num_nccl_streams",
    ("library-options", "thread-affinity"): "thread_affinity",
    ("library-options", "mlsl-bgt-affinity"): "thread_affinity",
    ("library-options", "ccl-bgt-affinity"): "thread_affinity",
    ("library-options", "gloo-timeout-seconds"): "gloo_timeout_seconds",
    ("library-options", "binding-args"): "binding_args",
    ("logging", "level"): "log_level",
    ("logging", "with-timestamp"): "log_with_timestamp",
    ("logging", "hide-timestamp"): "log_hide_timestamp",
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the flags of a command line, those of its configuration file among them, by Horovod's names."""
    given = parser().parse_args(list(argv))
    if given.config_file is not None:
        named = _named(argv)
        for name, value in read_config(given.config_file).items():
            if name not in named:
                setattr(given, name, value)
    for name in _NOT_NEGATIVE:
        value = getattr(given, name)
        if value is not None and not value >= 0:
            raise UsageError(f"--{name.replace('_', '-')} must not be negative, got {value}")
    noise = given.autotune_gaussian_process_noise
    if noise is not None and not 0 <= noise <= 1:
        raise UsageError(f"--autotune-gaussian-process-noise must be from 0 to 1, got {noise}")
    return given


_NOT_NEGATIVE = (
    "fusion_threshold_mb",
    "cycle_time_ms",
    "cache_capacity",
    "stall_check_warning_time_seconds",
    "stall_check_shutdown_time_seconds",
    "gloo_timeout_seconds",
    "num_nccl_streams",
    "thread_affinity",
    "autotune_warmup_samples",
    "autotune_steps_per_sample",
    "autotune_bayes_opt_max_samples",
)


def _named(argv: Sequence[str]) -> set[str]:
    """Return the names of the flags that a command line sets itself."""
    bare = parser()
    for action in bare._actions:
        action.default = argparse.SUPPRESS
    return set(vars(bare.parse_args(list(argv))))


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
        found |= _meant(path, name, value)
    return found


def _meant(path: str, name: str, value: Any) -> dict[str, Any]:
    """Return the flags that a key stands for."""
    if name == "controller":
        if str(value).lower() not in ("gloo", "mpi"):
            raise UsageError(f"{path}: controller must be gloo or mpi, got {value!r}")
        return {f"use_{str(value).lower()}": True}
    opposite = {"stall_check": "no_stall_check", "log_hide_timestamp": "log_with_timestamp"}.get(name)
    return {opposite: not value} if opposite is not None else {name: value}


def _leaves(data: Mapping[str, Any], before: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Return the values of nested sections, with their keys."""
    found = []
    for key, value in data.items():
        keys = (*before, str(key).replace("_", "-"))
        found += _leaves(value, keys) if isinstance(value, dict) else [(keys, value)]
    return found
