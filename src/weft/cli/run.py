"""`weft run`: a script on one machine or many."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import click

from weft.cli.hosts import chosen_hosts, dimension_options, host_options
from weft.errors import RankfileError, UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig

_EPILOG = """\b
Everything after the script belongs to the script.
\b
  weft run -n 2 train.py --epochs 3           two workers here
  weft run -H a,b:4 train.py                  hosts a and b, by ssh
  weft run -H a,b --dry-run train.py          print the plan, start nothing
  weft run -n 4 -m package.train              a module
  weft run -n 4 -- ./program --flag           any command
"""


class _RunCommand(click.Command):
    """Finds where the script begins, and accepts torchrun's underscores: --nproc_per_node."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options, rest = split_at_script(args, self._with_value())
        ctx.meta[_ANY_COMMAND] = rest[:1] == ["--"]
        rest = rest[1:] if ctx.meta[_ANY_COMMAND] else rest
        return super().parse_args(ctx, [*map(_hyphened, options), *(["--", *rest] if rest else [])])

    def _with_value(self) -> frozenset[str]:
        given = [param for param in self.params if isinstance(param, click.Option) and not param.is_flag]
        return frozenset(name for param in given for name in param.opts)


_ANY_COMMAND = "weft.any_command"


def split_at_script(args: Sequence[str], with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """Part our own options from what belongs to the script; `--` starts the second part."""
    value_next = False
    for index, arg in enumerate(args):
        if value_next:
            value_next = False
        elif arg == "--" or not arg.startswith("-") or arg == "-":
            return list(args[:index]), list(args[index:])
        elif arg.startswith("--"):
            value_next = _hyphened(arg) in with_value
        else:  # -n 2, -n2, -vn 2: a value follows if the first letter that takes one is the last
            takes = [position for position, letter in enumerate(arg) if f"-{letter}" in with_value]
            value_next = bool(takes) and takes[0] == len(arg) - 1
    return list(args), []


def _hyphened(arg: str) -> str:
    name, equals, value = arg.partition("=")
    ours = (
        name.startswith("--") and " " not in name
    )  # --mpiarg "--mca a_b c" has a value that only looks like one
    return (name.replace("_", "-") if ours else name) + equals + value


@click.command(
    "run",
    cls=_RunCommand,
    epilog=_EPILOG,
    context_settings={"allow_interspersed_args": False},
)
@click.option("-n", "--workers", type=int, metavar="WORKERS", help="Workers in all.")
@click.option(
    "--per-host",
    "--nproc-per-node",
    "per_host",
    metavar="N",
    help="Workers on each host: a number, `gpu`, `cpu` or `auto`.",
)
@host_options
@click.option("--nnodes", metavar="N", help="torchrun's spelling: must equal the number of hosts named.")
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "ssh", "mpi", "slurm"]),
    default="auto",
    help="What starts the workers.",
)
@click.option("--mode", metavar="MODE", help="How gradients are reduced, per dimension (see docs/modes.md).")
@click.option("--tcp", is_flag=True, help="Keep to TCP even where there is a faster fabric.")
@click.option(
    "--mpiarg", "mpi_args", multiple=True, metavar="ARG", help="Pass to mpirun; may be given again."
)
@click.option("--rankfile", metavar="FILE", help="Take hosts, ranks and cores from this file.")
@click.option(
    "--rank-order",
    type=click.Choice(["host", "round-robin"]),
    default="host",
    help="Ranks in a block per host, or dealt.",
)
@dimension_options
@click.option("--allow-uneven", is_flag=True, help="Let hosts differ, and have different numbers of workers.")
@click.option(
    "--env", "env", multiple=True, metavar="K=V", help="Set for every worker; K alone carries yours."
)
@click.option("--python", metavar="PATH", help="The interpreter on every host.")
@click.option("--interface", metavar="CARD", help="The network card to use, against our choice.")
@click.option(
    "--port", "--master-port", "port", type=int, metavar="PORT", help="Where workers meet on the leader."
)
@click.option(
    "--max-restarts",
    type=int,
    default=0,
    metavar="N",
    help="Restart all workers up to N times after a failure.",
)
@click.option("--run-dir", metavar="DIR", help="Keep plan, logs and outcome here (weft-runs/<time>-<name>).")
@click.option(
    "--grace",
    "grace_s",
    type=float,
    default=3.0,
    metavar="S",
    help="Seconds between asking a worker to end and ending it.",
)
@click.option(
    "--lost-after",
    "lost_after_s",
    type=float,
    default=2.5,
    metavar="S",
    help="Seconds of silence after which a host is lost.",
)
@click.option(
    "--no-pin", "pin", is_flag=True, flag_value=False, default=True, help="Do not bind workers to cores."
)
@click.option(
    "--sbatch", metavar="FILE", help="Write a Slurm batch script instead of running; `-` prints it."
)
@click.option("--standalone", is_flag=True, hidden=True, help="torchrun's; one host needs nothing else here.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan, or the outcome, as data.")
@click.option("--skip-checks", is_flag=True, help="Skip the preflight of a run on several hosts.")
@click.option("-v", "--verbose", is_flag=True, help="Show the checks and the commands.")
@click.option("-m", "--module", is_flag=True, help="The first argument is a module.")
@click.argument(
    "command",
    nargs=-1,
    type=click.UNPROCESSED,
    required=True,
    metavar="SCRIPT|-m MODULE|-- COMMAND [ARGS]...",
)
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Run a script on one machine or many."""
    from weft.launch import run as launch

    dry, as_json, sbatch = (options.pop(name) for name in ("dry_run", "as_json", "sbatch"))
    config = make_config(ctx.meta[_ANY_COMMAND], **options)
    if sbatch is not None:
        from weft.launch.slurm import write_batch_script

        write_batch_script(config, sbatch)
        return
    if dry:
        from weft.launch.plan import render_plan

        result = launch.dry_run(config)
        data = result.plan.to_json() | {"commands": result.commands}
        click.echo(json.dumps(data, indent=2) if as_json else render_plan(result.plan, result.commands))
        return
    outcome = launch.run(config, to_stderr=as_json)
    if as_json:
        click.echo(json.dumps(outcome.to_json(), indent=2))
    if not outcome.ok:
        from weft.launch.outcome import render_failure

        click.echo(render_failure(outcome), err=True)
    ctx.exit(outcome.code)


def make_config(any_command: bool, **options: Any) -> LaunchConfig:
    """The typed request behind the flags."""
    rest: tuple[str, ...] = options.pop("command")
    module, nnodes = options.pop("module"), options.pop("nnodes")
    options.pop("standalone")
    kind = "module" if module else "command" if any_command else "script"
    hosts = chosen_hosts(options.pop("hosts"), options.pop("hostfile"))
    rankfile = options.pop("rankfile")
    _check_nnodes(nnodes, len(hosts))
    run_dir = options.pop("run_dir")
    return LaunchConfig(
        command=Command(kind, rest[0], rest[1:]),  # type: ignore[arg-type]
        hosts=hosts,
        per_host=_per_host(options.pop("per_host")),
        env=tuple(map(_variable, options.pop("env"))),
        rankfile=_read_rankfile(rankfile) if rankfile else None,
        run_dir=Path(run_dir) if run_dir else None,
        **{name: value for name, value in options.items() if name in _FIELDS},
    )


_FIELDS = {field.name for field in dataclasses.fields(LaunchConfig)}


def _check_nnodes(nnodes: str | None, hosts: int) -> None:
    if nnodes is None:
        return
    if ":" in nnodes:
        low, _, high = nnodes.partition(":")
        if low != high:
            raise UsageError(
                f"--nnodes must be one number, got {nnodes}; a changing number of hosts is not supported here"
            )
        nnodes = low
    if nnodes != str(hosts or 1):
        raise UsageError(
            f"--nnodes must equal the hosts that are named, got {nnodes} for {hosts or 1}; weft starts every host "
            "itself, so name them with -H host1,host2"
        )


def _per_host(text: str | None) -> Any:
    if text is None or text in ("gpu", "cpu", "auto"):
        return text
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--per-host must be a number, gpu, cpu or auto, got {text!r}") from None


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--env must look like K=V or K, got {text!r}")
    if not equals:
        if name not in os.environ:
            raise UsageError(f"--env {name} must be set here to be carried, got nothing; write {name}=value")
        value = os.environ[name]
    return name, value


def _read_rankfile(path: str) -> Any:
    from weft.topology.rankfile import parse_rankfile

    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise RankfileError(
            f"--rankfile must be a text file, got {path}: {getattr(error, 'strerror', error)}"
        ) from None
    return parse_rankfile(text, path)
