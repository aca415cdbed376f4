"""`weft bench`: how fast the collectives are here, and beside others."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.paths import OutputFile, write_output
from weft.cli.training.options import launch_config, launch_options
from weft.cli.values import COUNT, COUNT_OR_NONE, Real, Size, Words
from weft.collectives.bench.plan import (
    BUS_FACTORS,
    ELEMENT_BYTES,
    BenchPlan,
    parse_sizes,
    size_range,
)
from weft.errors import RunError, UsageError
from weft.launch.command import Command
from weft.launch.config import LaunchConfig

if TYPE_CHECKING:
    from weft.collectives.bench.report import BenchReport
    from weft.launch.control.outcome import Outcome

_EPILOG = """\b
  weft bench -n 2 --against gloo                      this machine, beside Gloo
  weft bench -H a,b --per-host 2 --min 1KiB --max 16MiB --factor 4
  weft bench -n 2 --engine mpi --against mpi          beside Open MPI, by mpi4py
  weft bench -n 2 --op all --plot collectives.svg
"""


@click.command("bench", epilog=_EPILOG)
@click.option(
    "--op",
    "operations",
    type=Words([*BUS_FACTORS, "all"]),
    default="all_reduce",
    metavar="OP,...",
    help=f"{', '.join(BUS_FACTORS)}, or all; all_reduce if not given.",
)
@click.option("--sizes", metavar="SIZE,...", help="Message sizes; 4KiB,256KiB,4MiB,64MiB if not given.")
@click.option(
    "--min", "least", type=Size("4KiB"), metavar="SIZE", help="The first of a range of sizes (4KiB)."
)
@click.option(
    "--max", "most", type=Size("64MiB"), metavar="SIZE", help="The last of a range of sizes (64MiB)."
)
@click.option(
    "--factor",
    type=Real(above=1, most=1e6, example=4),
    metavar="X",
    help="Each size of a range is X times the one before (4).",
)
@click.option("--dtype", default="float32", metavar="TYPE", help=f"{', '.join(ELEMENT_BYTES)}.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where the tensors are.")
@click.option(
    "--against",
    default="",
    metavar="RIVAL,...",
    help="Measure these in turn with ours: gloo, nccl, mpi (with --engine mpi), copies (plain memory copies), "
    "weft:mode=MODE or weft:wire=WIRE (ours, otherwise).",
)
@click.option("--iterations", type=COUNT, default=20, metavar="N", help="Times each is measured.")
@click.option(
    "--warmup", type=COUNT_OR_NONE, default=3, metavar="N", help="Times each is called before that."
)
@click.option("--calls", type=COUNT, default=1, metavar="N", help="Calls in a row for one time.")
@click.option("--json", "as_json", is_flag=True, help="Print every time as data.")
@click.option("--plot", type=OutputFile(), metavar="FILE.svg", help="Draw bus bandwidth over size.")
@launch_options
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Measure collectives as nccl-tests does: time, algorithm and bus bandwidth by size.

    Rivals run in the same processes and on the same tensors as ours, in turns. A call takes as long as on its slowest
    rank, and every result is checked. The options of a launch are those of `weft run`.
    """
    plan = make_plan(options)
    config = launch_config(Command("module", "weft.collectives.bench.worker", (plan.to_text(),)), options)
    _check(plan, config)
    report, outcome = measure(config)
    if report is None or not outcome.ok:
        from weft.launch.control.outcome import render_failure

        click.echo(render_failure(outcome), err=True)
        ctx.exit(outcome.code or 1)
    if options["plot"]:
        from weft.collectives.bench.plot import render_svg

        write_output(options["plot"], render_svg(report))
    if options["as_json"]:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        from weft.collectives.bench.report import render_report

        click.echo(render_report(report))
    if report.about["crowded"]:
        names = ", ".join(report.about["crowded"])
        click.echo(f"weft: more workers than cores on {names}: times include waiting for a core", err=True)
    if report.wrong:
        backends = dict.fromkeys(row.backend for row in report.rows if row.wrong)
        raise RunError(f"results must be right, got {report.wrong} wrong elements from {', '.join(backends)}")


def make_plan(options: dict[str, Any]) -> BenchPlan:
    """The typed request behind the flags."""
    chosen: dict[str, Any] = {}
    if options["sizes"] is not None:
        if any(options[name] is not None for name in ("least", "most", "factor")):
            raise UsageError(
                "sizes must be given once, got --sizes and a range; drop --min, --max and --factor"
            )
        chosen["sizes"] = parse_sizes(options["sizes"])
    elif any(options[name] is not None for name in ("least", "most", "factor")):
        least, most = options["least"] or 4 << 10, options["most"] or 64 << 20
        chosen["sizes"] = size_range(least, most, options["factor"] if options["factor"] is not None else 4)
    operations = options["operations"]
    return BenchPlan(
        operations=tuple(BUS_FACTORS) if "all" in operations else operations,
        against=_words(options["against"]),
        **{name: options[name] for name in ("dtype", "device", "iterations", "warmup", "calls")},
        **chosen,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _check(plan: BenchPlan, config: LaunchConfig) -> None:
    """Refuse what would fail only after minutes of measuring, or with a strange message."""
    if "mpi" in plan.against and config.engine != "mpi":
        raise UsageError(
            f"--against mpi must run under mpirun, got --engine {config.engine}; add --engine mpi or drop mpi"
        )


def measure(config: LaunchConfig) -> tuple[BenchReport | None, Outcome]:
    """Run the workers; their findings, if they had any, are in the log of rank 0."""
    from weft.collectives.bench.report import find_data, read_report
    from weft.launch import run as launch

    # Workers print nothing but data; what goes wrong they tell on standard error.
    with redirect_stdout(io.TextIOWrapper(io.BytesIO())):
        outcome = launch.run(config)
    if outcome.failure is not None and outcome.failure.log is not None:
        for kind, message in find_data(Path(outcome.failure.log).read_text().splitlines()):
            if kind == "refused":
                raise UsageError(message)
    if not outcome.ok or outcome.run_dir is None:
        return None, outcome
    folder = Path(outcome.run_dir)
    report = read_report((folder / "rank-0.log").read_text())
    report.about["crowded"] = _crowded(json.loads((folder / "plan.json").read_text()))
    write_output(folder / "bench.json", json.dumps(report.to_json(), indent=2) + "\n")
    return report, outcome


def _crowded(plan: dict[str, Any]) -> list[str]:
    """The hosts whose workers share cores."""
    return [
        host["name"]
        for host in plan["hosts"]
        if any(worker["placement"] and worker["placement"]["shared"] for worker in host["workers"])
    ]
