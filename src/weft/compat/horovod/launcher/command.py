"""`horovodrun` as a translation: from its command line to one of `weft run`, and sentences about what is different."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft.compat.horovod.launcher.flags import DECIDED_FLAGS, DECIDED_SWITCHES, KNOBS, parser, read_config
from weft.errors import UsageError, WeftError

NOTE = "horovodrun: "


@dataclass(frozen=True)
class HorovodrunTranslation:
    """The arguments of `weft`, and what its user should know."""

    args: tuple[str, ...]
    notes: tuple[str, ...] = ()


def main(argv: Sequence[str], call: Callable[[Sequence[str]], int]) -> int:
    """Carry out a command line of `horovodrun`; `call` carries out one of `weft`. Returns the exit code."""
    try:
        given = parser().parse_args(list(argv))
        if given.version or given.check_build:
            print(_version() if given.version else _build())
            return 0
        made = translate(argv)
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return error.exit_code
    for note in made.notes:
        print(f"{NOTE}{note}", file=sys.stderr)
    return call(made.args)


def translate(argv: Sequence[str]) -> HorovodrunTranslation:
    """Return the command line of `weft run` that does what one of `horovodrun` asks for; refuse what cannot be."""
    given = parser().parse_args(list(argv))
    if given.config_file is not None:
        named = _named(argv)
        for name, value in read_config(given.config_file).items():
            if name not in named:
                setattr(given, name, value)
    _refuse(given)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise UsageError(
            "horovodrun must be given a command, got none; write horovodrun -np 2 python train.py"
        )
    args = ["run", *_where(given), *_elastic(given), *_how(given), *_variables(given)]
    return HorovodrunTranslation((*args, *_program(command)), tuple(_notes(given)))


def _program(command: Sequence[str]) -> Sequence[str]:
    """Return the command as `weft run` takes it: `python` is the interpreter of this environment."""
    if command[0] in ("python", "python3"):
        rest = [*command[1:]]
        while rest[:1] == ["-u"]:  # as workers run always
            rest.pop(0)
        if rest[:1] == ["-m"] and len(rest) > 1:
            return rest
        if rest and rest[0].endswith(".py"):
            return rest
    return ("--", *command)


def _named(argv: Sequence[str]) -> set[str]:
    """Return the names of the flags that a command line sets itself."""
    bare = parser()
    for action in bare._actions:
        action.default = argparse.SUPPRESS
    return set(vars(bare.parse_args(list(argv))))


def _refuse(given: argparse.Namespace) -> None:
    if given.use_jsrun:
        raise UsageError(
            "--jsrun is not supported, got it; use --mpi, or weft run --engine slurm under Slurm"
        )
    if given.ssh_port is not None or given.ssh_identity_file is not None:
        raise UsageError(
            "the port and the key of ssh must be in ~/.ssh/config (Port, IdentityFile), got a flag; drop -p and -i"
        )
    if given.hosts is not None and given.hostfile is not None:
        raise UsageError("hosts must be named once, got -H and -hostfile; drop one")
    if given.use_mpi and given.use_gloo:
        raise UsageError("one of --gloo and --mpi may be given, got both; drop one")
    for name in ("num_proc", "min_np", "max_np", "slots_per_host"):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(given, name)}")
    if not _is_elastic(given):
        for name in ("elastic_timeout", "reset_limit", "blacklist_cooldown_range", "slots_per_host"):
            if getattr(given, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} is for elastic runs, got it alone; add --min-np and --max-np")


def _is_elastic(given: argparse.Namespace) -> bool:
    return any(x is not None for x in (given.host_discovery_script, given.min_np, given.max_np))


def _where(given: argparse.Namespace) -> Iterator[str]:
    if given.hosts is not None:
        yield from ("-H", given.hosts)
    if given.hostfile is not None:
        yield from ("--hostfile", given.hostfile)
    if not _is_elastic(given):
        if given.num_proc is not None:
            yield from ("-n", str(given.num_proc))
        elif given.hosts is None and given.hostfile is None:
            raise UsageError("horovodrun must be told how many workers, got none; write -np 2")
        if given.hosts is not None or given.hostfile is not None:
            yield "--allow-uneven"


def _elastic(given: argparse.Namespace) -> Iterator[str]:
    if not _is_elastic(given):
        return
    least = given.min_np or given.num_proc or 1
    most = given.max_np or max(given.num_proc or 1, least)
    if least > most:
        raise UsageError(f"--min-np must not be above --max-np, got {least} and {most}")
    yield from ("--elastic", f"{least}:{most}")
    if given.host_discovery_script is not None:
        yield from ("--discover", given.host_discovery_script)
    if given.slots_per_host is not None:
        yield from ("--per-host", str(given.slots_per_host))
    cooldown = given.blacklist_cooldown_range
    if cooldown is not None and not 0 < cooldown[0] <= cooldown[1]:
        raise UsageError(
            f"--blacklist-cooldown-range must be two numbers of seconds, the smaller one first, got {cooldown[0]} "
            f"{cooldown[1]}; write --blacklist-cooldown-range 10 100"
        )
    yield from ("--bar-hosts", "forever" if cooldown is None else f"{cooldown[0]}:{cooldown[1]}")
    if given.start_timeout is not None:
        yield from ("--start-within", f"{given.start_timeout:g}")


def _how(given: argparse.Namespace) -> Iterator[str]:
    if given.interface is not None:
        yield from ("--interface", _cards(given)[0])
    if given.tcp_flag:
        yield "--tcp"
    if given.use_mpi:
        yield from ("--engine", "mpi")
    for argument in shlex.split(given.mpi_args or ""):
        yield f"--mpiarg={argument}"
    if given.output_filename is not None:
        yield from ("--run-dir", given.output_filename)
    if given.verbose:
        yield "-v"


def _variables(given: argparse.Namespace) -> Iterator[str]:
    """Yield the settings of the workers."""
    found: dict[str, str] = {}
    for _, name, kind in KNOBS:
        value = getattr(given, name)
        if value is None:
            continue
        try:
            value = kind(value)
        except (TypeError, ValueError):
            raise UsageError(f"{name} must be of the type {kind.__name__}, got {value!r}") from None
        if name == "fusion_threshold_mb":
            name, value = "fusion_threshold", int(value * 1024 * 1024)
        found[name.upper()] = str(value)
    if given.timeline_mark_cycles:
        found["TIMELINE_MARK_CYCLES"] = "1"
    if given.stall_check is False:
        found["STALL_CHECK_DISABLE"] = "1"
    if given.start_timeout is not None:
        found["START_TIMEOUT"] = f"{given.start_timeout:g}"
    if given.elastic_timeout is not None:
        found["ELASTIC_TIMEOUT"] = f"{given.elastic_timeout:g}"
    if given.reset_limit is not None:
        found["ELASTIC_RESET_LIMIT"] = str(given.reset_limit)
    for name, value in found.items():
        yield from ("--env", f"HOROVOD_{name}={value}")


def _cards(given: argparse.Namespace) -> list[str]:
    """Return the network cards that are named, by one flag or by several."""
    return [card for each in given.interface or () for card in each.split(",")]


def _notes(given: argparse.Namespace) -> Iterator[str]:
    """Yield what is different from what the user may expect."""
    for flag, why in {**DECIDED_FLAGS, **DECIDED_SWITCHES}.items():
        if getattr(given, flag.removeprefix("--").replace("-", "_"), None):
            yield f"{flag} has no effect: {why}"
    if given.prefix_output_with_timestamp:
        yield "--prefix-output-with-timestamp has no effect: lines have the rank before them"
    cards = _cards(given)
    if len(cards) > 1:
        yield f"of the network cards, {cards[0]} is used: Weft has connections on one of them"
    if given.output_filename is not None:
        yield f"output is in {given.output_filename}/rank-N.log, one file for each rank"
    if given.disable_cache:
        yield "--disable-cache has no effect: what is kept of checks is found by the hosts"


def _version() -> str:
    return "0.28.1"


def _build() -> str:
    """Return what the build has, in the form that Horovod prints it in."""
    from importlib.util import find_spec

    from weft.version import __version__

    def box(there: bool) -> str:
        return "[X]" if there else "[ ]"

    frameworks = {"TensorFlow": "tensorflow", "PyTorch": "torch", "Keras": "keras"}
    lines = [f"Horovod's interface, made of Weft {__version__}:", "", "Available Frameworks:"]
    lines += [f"    {box(find_spec(module) is not None)} {name}" for name, module in frameworks.items()]
    lines += [
        "    [ ] MXNet",
        "",
        "Available Controllers:",
        "    [X] Weft",
        "",
        "Available Tensor Operations:",
    ]
    return "\n".join([*lines, "    [X] Weft (shared memory, TCP, NCCL)"])
