"""`weft run`: a script on one machine or many."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from weft.cli.paths import OutputFile
from weft.cli.training.kubernetes import kubernetes_config, kubernetes_options
from weft.cli.training.options import launch_config, launch_options
from weft.cli.values import COUNT, COUNT_OR_NONE, DeviceMemory, Seconds, Size, Text, WorkerLimits
from weft.compat.horovod.launcher.beside import conflict as two_horovods
from weft.errors import UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig

if TYPE_CHECKING:
    from weft.elastic.config import ElasticConfig
    from weft.launch.control.outcome import Outcome

_EPILOG = """\b
Everything after the script belongs to the script.
\b
  weft run -n 2 train.py --epochs 3           two workers here
  weft run -H a:4,b:4 train.py                four each on hosts a and b, by ssh
  weft run -H a,b --dry-run train.py          print the plan, start nothing
  weft run -n 4 -m package.train              a module
  weft run -n 4 -- ./program --flag           any command
  weft run --engine kubernetes --image me/train:1 --pods 4 train.py
"""


class _RunCommand(click.Command):
    """Finds where the script begins."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options, rest = split_at_script(args, self._with_value())
        ctx.meta[_ANY_COMMAND] = rest[:1] == ["--"]
        ctx.meta[_SCRIPT] = " ".join(rest)
        rest = rest[1:] if ctx.meta[_ANY_COMMAND] else rest
        return super().parse_args(ctx, [*options, *(["--", *rest] if rest else [])])

    def _with_value(self) -> frozenset[str]:
        given = [param for param in self.params if isinstance(param, click.Option) and not param.is_flag]
        return frozenset(name for param in given for name in param.opts)


_ANY_COMMAND = "weft.any_command"
_SCRIPT = "weft.script"


def split_at_script(args: Sequence[str], with_value: Collection[str]) -> tuple[list[str], list[str]]:
    """Part our own options from what belongs to the script; `--` starts the second part."""
    value_next = False
    for index, arg in enumerate(args):
        if value_next:
            value_next = False
        elif arg == "--" or not arg.startswith("-") or arg == "-":
            return list(args[:index]), list(args[index:])
        elif arg.startswith("--"):
            value_next = _hyphened(arg) in with_value  # --name=value is not
        else:  # -n 2, -n2, -vn 2: a value follows if the first letter that takes one is the last
            takes = [position for position, letter in enumerate(arg) if f"-{letter}" in with_value]
            value_next = bool(takes) and takes[0] == len(arg) - 1
    return list(args), []


def _hyphened(name: str) -> str:
    """Torchrun takes --nproc_per_node too."""
    return name.replace("_", "-")


def _adopt(ctx: click.Context, _param: click.Parameter, run: str | None) -> None:
    """Become the launcher of a run that has lost its own; all other options are ignored."""
    if run is None:
        return
    if ctx.meta[_SCRIPT]:
        raise UsageError(
            f"--adopt takes a run over as it is, got the script {ctx.meta[_SCRIPT]!r} as well; drop one"
        )
    from weft.elastic.launcher.adopt import adopt
    from weft.launch.control.rundir import find_run

    _finish(ctx, adopt(find_run(run), out=sys.stdout.buffer))


@click.command(
    "run",
    cls=_RunCommand,
    epilog=_EPILOG,
    context_settings={"allow_interspersed_args": False, "token_normalize_func": _hyphened},
)
@launch_options
@kubernetes_options
@click.option(
    "--nnodes",
    metavar="MIN:MAX",
    help="torchrun's spelling; MAX must equal the hosts named. After a host is lost a restart needs MIN.",
)
@click.option(
    "--max-restarts",
    type=COUNT_OR_NONE,
    default=0,
    metavar="N",
    help="Restart all workers up to N times after a failure.",
)
@click.option(
    "--elastic",
    type=WorkerLimits(),
    metavar="MIN:MAX",
    help="Go on with as few as MIN workers, take in up to MAX (see docs/how-to/elastic.md).",
)
@click.option(
    "--detect-within",
    type=Seconds(0.4, 3600, example=2),
    default=2.0,
    metavar="S",
    help="With --elastic: seconds within which a fault is noticed.",
)
@click.option(
    "--start-within",
    type=Seconds(example=30),
    default=30.0,
    metavar="S",
    help="With --elastic: seconds to wait for more than MIN workers at the start.",
)
@click.option(
    "--alone",
    type=Seconds(example=60),
    default=60.0,
    metavar="S",
    help="With --elastic: seconds after which a host that is cut off from the others and from the launcher ends its "
    "workers.",
)
@click.option(
    "--slow",
    type=click.Choice(["report", "rebalance", "evict"]),
    default="report",
    help="With --elastic: what to do about a slow worker.",
)
@click.option(
    "--discover",
    type=Text("a command", "./hosts.sh"),
    metavar="COMMAND",
    help="With --elastic: prints the hosts to use, one a line; asked again and again.",
)
@click.option(
    "--bar-hosts",
    type=Text("seconds", "10:100"),
    metavar="FIRST:LONGEST",
    help="With --elastic: seconds for which a host is not used after a worker failed there, doubled each time; "
    "`forever`: for good.",
)
@click.option(
    "--witness",
    metavar="HOST",
    help="With --elastic: a machine without workers that tells which of two hosts is lost.",
)
@click.option(
    "--checkpoint",
    type=Text("a folder", "checkpoints"),
    metavar="DIR",
    help="With --elastic: save there, and resume from there.",
)
@click.option(
    "--checkpoint-every",
    type=COUNT,
    metavar="N",
    help="With --elastic: steps from one checkpoint to the next.",
)
@click.option(
    "--adopt",
    metavar="RUN",
    is_eager=True,
    expose_value=False,
    callback=_adopt,
    help="Be the launcher of an elastic run whose own was killed: its run directory, or `latest`.",
)
@click.option(
    "--sbatch",
    type=OutputFile(dash=True),
    metavar="FILE",
    help="Write a Slurm batch script instead of running; `-` prints it.",
)
@click.option(
    "--memory",
    "memory_bytes",
    type=Size("16GiB"),
    metavar="BYTES",
    help="End a worker that holds more memory than this, 16GiB say.",
)
@click.option(
    "--lms",
    type=DeviceMemory(),
    metavar="BYTES|auto",
    help="Train within this much device memory, 20GB say, or auto (see docs/how-to/lms.md).",
)
@click.option(
    "--plan",
    "parallel",
    type=Text("auto or a plan file", "auto"),
    metavar="auto|FILE",
    help="Run as a plan of weft plan says; auto makes one for plain DDP (see docs/how-to/plan.md).",
)
@click.option("--standalone", is_flag=True, hidden=True, help="torchrun's; one host needs nothing else here.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan, or the outcome, as data.")
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
    options["kubernetes"] = kubernetes = kubernetes_config(options)
    elastic = None if kubernetes is not None else elastic_config(options)
    parallel = options.pop("parallel")
    config = make_config(ctx.meta[_ANY_COMMAND], **options)
    if elastic is not None:
        from weft.elastic.launcher.underlying import underlying_launch
        from weft.launch.engines.engine import choose_engine

        if sbatch is not None:
            raise UsageError("--elastic runs on the engines local and ssh, got --sbatch; drop one of the two")
        if choose_engine(config) != "pods":  # which knows its hosts later
            config = underlying_launch(config, elastic)
    if parallel is not None:
        from weft.parallel.applying.launching import planned_launch

        config, planned = planned_launch(config, parallel, dry=dry, elastic=elastic is not None)
        click.echo(f"weft: {planned}", err=True)
    if sbatch is not None:
        from weft.launch.engines.slurm import write_batch_script

        write_batch_script(config, str(sbatch))
        return
    if dry and config.engine == "kubernetes":
        from weft.launch.engines.kubernetes.engine import KubernetesEngine
        from weft.launch.engines.kubernetes.objects.yaml_text import to_yaml

        objects = KubernetesEngine(config).objects()
        click.echo(json.dumps(objects, indent=2) if as_json else to_yaml(objects), nl=as_json)
        return
    if dry:
        from weft.launch.plan_text import render_plan

        result = launch.dry_run(config)
        data = result.plan.to_json() | {"commands": result.commands}
        click.echo(json.dumps(data, indent=2) if as_json else render_plan(result.plan, result.commands))
        return
    if (warning := two_horovods()) is not None:
        click.echo(f"weft: {warning}", err=True)
    if elastic is not None:
        from weft.elastic.launcher.start import run_elastic

        outcome = run_elastic(config, elastic, out=(sys.stderr if as_json else sys.stdout).buffer)
    else:
        outcome = launch.run(config, to_stderr=as_json)
    if as_json:
        click.echo(json.dumps(outcome.to_json(), indent=2))
    _finish(ctx, outcome)


def _finish(ctx: click.Context, outcome: Outcome) -> NoReturn:
    """Say how a run ended, and end as it did."""
    if not outcome.ok:
        from weft.launch.control.outcome import render_failure

        click.echo(render_failure(outcome), err=True)
    ctx.exit(outcome.code)


def elastic_config(options: dict[str, Any]) -> ElasticConfig | None:
    """Return the settings of an elastic run, and take its flags out of the options."""
    names = (
        "detect_within",
        "start_within",
        "alone",
        "slow",
        "discover",
        "bar_hosts",
        "witness",
        "checkpoint",
        "checkpoint_every",
    )
    limits = options.pop("elastic")
    given = {name: options.pop(name) for name in names}
    if limits is None:
        for name in ("discover", "bar_hosts", "witness", "checkpoint", "checkpoint_every"):
            if given[name] is not None:
                flag = f"--{name.replace('_', '-')}"
                raise UsageError(f"{flag} must come with --elastic, got it alone; add --elastic MIN:MAX")
        return None
    from weft.elastic.config import ElasticConfig
    from weft.elastic.launcher.hosts.barred import parse_barring
    from weft.elastic.launcher.hosts.wanted import discover

    if given["bar_hosts"] is not None:
        parse_barring(given["bar_hosts"])  # refuses what cannot be
    least, most = limits
    if given["discover"] is not None and options["hosts"] is None and options["hostfile"] is None:
        options["hosts"] = ",".join(
            entry.name if entry.workers is None else f"{entry.name}:{entry.workers}"
            for entry in discover(given["discover"])
        )
    return ElasticConfig(
        least=least,
        most=most,
        detect_within_s=given["detect_within"],
        start_within_s=given["start_within"],
        alone_s=given["alone"],
        slow=given["slow"],
        hostfile=options["hostfile"],
        discover=given["discover"],
        bar_hosts=given["bar_hosts"],
        witness=given["witness"],
        checkpoint=Path(given["checkpoint"]).absolute() if given["checkpoint"] else None,
        checkpoint_every=given["checkpoint_every"],
    )


def make_config(any_command: bool, **options: Any) -> LaunchConfig:
    """The typed request behind the flags."""
    rest: tuple[str, ...] = options.pop("command")
    module, nnodes = options.pop("module"), options.pop("nnodes")
    options.pop("standalone")
    if (budget := options.pop("lms")) is not None:
        from weft.lms.autoload import VARIABLE

        options["env"] = (*options["env"], f"{VARIABLE}={budget}")
    kind = "module" if module else "command" if any_command else "script"
    config = launch_config(Command(kind, rest[0], rest[1:]), options)  # type: ignore[arg-type]
    least = _least_hosts(nnodes, len(config.host_names) or 1)
    return replace(config, min_hosts=least) if least is not None else config


def _least_hosts(nnodes: str | None, hosts: int) -> int | None:
    """Return with how few hosts a restart may go on, as torchrun's MIN:MAX has it; None if it must have all."""
    if nnodes is None:
        return None
    least, colon, most = nnodes.partition(":")
    if colon and not (least.isdecimal() and most.isdecimal() and 1 <= int(least) <= int(most)):
        raise UsageError(f"--nnodes must be N or MIN:MAX with 1 <= MIN <= MAX, got {nnodes}; write 2:4")
    if (most if colon else least) != str(hosts):
        raise UsageError(
            f"--nnodes must equal the hosts that are named, got {nnodes} for {hosts}; weft starts every host "
            "itself, so name them with -H host1,host2"
        )
    return int(least) if colon and least != most else None
