"""`horovodrun` as a translation: from its command line to one of `weft run`, and sentences about what is different."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from weft.compat.horovod.launcher.flags import DECIDED_FLAGS, DECIDED_SWITCHES, KNOBS, parse
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
        given = parse(argv)
        if given.version or given.check_build:
            print(_version() if given.version else _build())
            return 0
        made = translation_of(given)
    except WeftError as error:
        print(f"weft: {error}", file=sys.stderr)
        return error.exit_code
    for note in made.notes:
        print(f"{NOTE}{note}", file=sys.stderr)
    return call(made.args)


def translate(argv: Sequence[str]) -> HorovodrunTranslation:
    """Return the command line of `weft run` that does what one of `horovodrun` asks for; refuse what cannot be."""
    return translation_of(parse(argv))


def translation_of(given: argparse.Namespace) -> HorovodrunTranslation:
    """Return the command line of `weft run` for the flags of `horovodrun`."""
    refuse(given)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        raise UsageError(
            "horovodrun must be given a command, got none; write horovodrun -np 2 python train.py"
        )
    args = ["run", *_where(given), *_elastic(given), *_engine_options(given), *_variables(given)]
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


def refuse(given: argparse.Namespace) -> None:
    """Refuse flags that cannot be served."""
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
    for name, flag in (
        ("num_proc", "-np"),
        ("min_num_proc", "--min-np"),
        ("max_num_proc", "--max-np"),
        ("slots", "--slots-per-host"),
    ):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            raise UsageError(f"{flag} must be at least 1, got {getattr(given, name)}")
    if not is_elastic(given):
        for name, flag in (
            ("elastic_timeout", "--elastic-timeout"),
            ("reset_limit", "--reset-limit"),
            ("cooldown_range", "--blacklist-cooldown-range"),
            ("slots", "--slots-per-host"),
        ):
            if getattr(given, name) is not None:
                raise UsageError(f"{flag} is for elastic runs, got it alone; add --min-np and --max-np")


def is_elastic(given: argparse.Namespace) -> bool:
    """Return whether the run's members may change."""
    return any(x is not None for x in (given.host_discovery_script, given.min_num_proc, given.max_num_proc))


def _where(given: argparse.Namespace) -> Iterator[str]:
    if given.hosts is not None:
        yield from ("-H", given.hosts)
    if given.hostfile is not None:
        yield from ("--hostfile", given.hostfile)
    if not is_elastic(given):
        if given.num_proc is not None:
            yield from ("-n", str(given.num_proc))
        elif given.hosts is None and given.hostfile is None:
            raise UsageError("horovodrun must be told how many workers, got none; write -np 2")
        if given.hosts is not None or given.hostfile is not None:
            yield "--allow-uneven"


def _elastic(given: argparse.Namespace) -> Iterator[str]:
    if not is_elastic(given):
        return
    least = given.min_num_proc or given.num_proc or 1
    most = given.max_num_proc or max(given.num_proc or 1, least)
    if least > most:
        raise UsageError(f"--min-np must not be above --max-np, got {least} and {most}")
    yield from ("--elastic", f"{least}:{most}")
    if given.host_discovery_script is not None:
        yield from ("--discover", given.host_discovery_script)
        if not given.use_mpi:  # hosts may follow, though it names this machine alone at first
            yield from ("--engine", "ssh")
    if given.slots is not None:
        yield from ("--per-host", str(given.slots))
    cooldown = given.cooldown_range
    if cooldown is not None and not 0 < cooldown[0] <= cooldown[1]:
        raise UsageError(
            f"--blacklist-cooldown-range must be two numbers of seconds, the smaller one first, got {cooldown[0]} "
            f"{cooldown[1]}; write --blacklist-cooldown-range 10 100"
        )
    yield from ("--bar-hosts", "forever" if cooldown is None else f"{cooldown[0]}:{cooldown[1]}")
    if given.start_timeout is not None:
        yield from ("--start-within", f"{given.start_timeout:g}")


def _engine_options(given: argparse.Namespace) -> Iterator[str]:
    if given.nics is not None:
        yield from ("--interface", cards_of(given)[0])
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


def settings_of(given: argparse.Namespace) -> dict[str, str]:
    """Return the settings of the workers, by their names without HOROVOD_."""
    found: dict[str, str] = {}
    for name, variable, kind in KNOBS:
        value = getattr(given, name)
        if value is None:
            continue
        try:
            value = kind(value)
        except (TypeError, ValueError):
            raise UsageError(f"{name} must be of the type {kind.__name__}, got {value!r}") from None
        found[variable] = str(int(value * 1024 * 1024) if name == "fusion_threshold_mb" else value)
    if given.timeline_mark_cycles:
        found["TIMELINE_MARK_CYCLES"] = "1"
    if given.no_stall_check:
        found["STALL_CHECK_DISABLE"] = "1"
    if given.start_timeout is not None:
        found["START_TIMEOUT"] = f"{given.start_timeout:g}"
    if given.elastic_timeout is not None:
        found["ELASTIC_TIMEOUT"] = f"{given.elastic_timeout:g}"
    if given.reset_limit is not None:
        found["ELASTIC_RESET_LIMIT"] = str(given.reset_limit)
    return found


def _variables(given: argparse.Namespace) -> Iterator[str]:
    for name, value in settings_of(given).items():
        yield from ("--env", f"HOROVOD_{name}={value}")


def cards_of(given: argparse.Namespace) -> list[str]:
    """Return the network cards that are named, by one flag or by several."""
    named = [given.nics] if isinstance(given.nics, str) else given.nics or ()
    return [card for each in named for card in each.split(",")]


def _notes(given: argparse.Namespace) -> Iterator[str]:
    """Yield what is different from what the user may expect."""
    whys = {flag: why for flag, (_, why) in DECIDED_FLAGS.items()} | DECIDED_SWITCHES
    for flag, why in whys.items():
        if getattr(given, flag.removeprefix("--").replace("-", "_"), None):
            yield f"{flag} has no effect: {why}"
    if given.log_with_timestamp is not None:
        yield "timestamps of log lines are not set here: lines have the rank before them"
    if given.prefix_output_with_timestamp:
        yield "--prefix-output-with-timestamp has no effect: lines have the rank before them"
    cards = cards_of(given)
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
