"""`weft plan`: what every way to share a model between hosts would take, and the best of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weft.cli.hosts.options import chosen_hosts, host_options
from weft.cli.paths import ExistingFile, OutputFile, write_output
from weft.cli.values import Checked, Size, Text, Whole
from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.parallel.planning.choice import WayChoice
    from weft.parallel.prediction.cluster import ClusterFacts
    from weft.parallel.prediction.step import RecordedStep
    from weft.topology.hostlist import HostEntry

PLAN_FILE = "weft-plan.json"
_EPILOG = """\b
  weft plan train.py -H a,b,c,d                       record one worker's step, predict every way, write the best
  weft plan train.py -H a,b -- --epochs 1             what follows -- belongs to the script
  weft plan --model nets.py:make --batch 8x3x32x32 -H a,b --link 1Gb
  weft plan --simulate 64x8 --gpu h100 --link 100Gb --model 7b --plot scaling.svg
"""


def _rate(text: str) -> object:
    from weft.parallel.simulated.constants import parse_rate

    return parse_rate(text)


def _shape(text: str) -> object:
    from weft.parallel.simulated.constants import parse_hosts_by_workers

    return parse_hosts_by_workers(text)


def _gpu(text: str) -> object:
    from weft.parallel.simulated.constants import accelerator

    return accelerator(text)


@click.command("plan", epilog=_EPILOG)
@host_options
@click.option("--per-host", type=Whole(1, 1024, example=2), metavar="N", help="Workers on each host (1).")
@click.option(
    "--model",
    type=Text("module:factory or a size such as 7b", "nets.py:make"),
    metavar="MODULE:FACTORY",
    help="Record this model in place of a script; with --simulate also a size: 7b, 13b, 70b.",
)
@click.option(
    "--batch",
    type=Text("shapes", "8x3x32x32"),
    metavar="SPEC",
    help="Inputs of --model: 8x3x32x32, 8x128:int64 or ids=8x128:int64; of a size, sequences x length.",
)
@click.option(
    "--passes", type=Whole(1, 4096, example=8), metavar="N", help="Passes (micro-batches) in a step."
)
@click.option(
    "--step", type=ExistingFile("a recorded step"), metavar="FILE", help="Take a step that was recorded."
)
@click.option("--record", type=OutputFile(), metavar="FILE", help="Keep the recorded step in a file.")
@click.option(
    "--bench", type=ExistingFile("a table"), metavar="FILE", help="Speeds by weft bench --op all --json."
)
@click.option("--measure", is_flag=True, help="Measure the links between the hosts now, as weft check does.")
@click.option(
    "--link",
    type=Checked(_rate),
    metavar="RATE",
    help="The rate of each host's card, 1Gb say, if not measured.",
)
@click.option("--uplink", type=Checked(_rate), metavar="RATE", help="The rate of each rack's uplink.")
@click.option("--racks", type=Whole(1, 4096, example=2), metavar="N", help="Racks that the hosts are in.")
@click.option("--memory", type=Size("16GB"), metavar="BYTES", help="Memory that a worker may use.")
@click.option(
    "--allow",
    type=click.Choice(["nothing", "rounding", "more"]),
    default="rounding",
    help="What the best way may change about results.",
)
@click.option(
    "--simulate", type=Checked(_shape), metavar="HOSTSxWORKERS", help="Hosts that are not there: 64x8."
)
@click.option(
    "--gpu", type=Checked(_gpu), metavar="NAME", help="Their accelerators; also for shapes alone: h100."
)
@click.option(
    "--plot", type=OutputFile(), metavar="FILE.svg", help="With --simulate: draw scaling to 512 hosts."
)
@click.option("-o", "--out", type=OutputFile(), metavar="FILE", help=f"The plan file ({PLAN_FILE}).")
@click.option("--all", "every", is_flag=True, help="A row for every way, not for the best of each kind.")
@click.option("--dry-run", is_flag=True, help="Say what would be recorded and measured, and do nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print every prediction as data.")
@click.argument("script", required=False, metavar="[SCRIPT]", type=click.UNPROCESSED)
@click.argument("arguments", nargs=-1, metavar="[-- ARGS]...", type=click.UNPROCESSED)
def command(**options: Any) -> None:
    """Predict a step for every way to share a model between hosts, and write the best as a plan.

    One worker's step is recorded; links are those that weft check has measured. `weft run --plan` and
    weft.parallel.apply carry the plan out.
    """
    _check(options)
    entries = chosen_hosts(options["hosts"], options["hostfile"])
    if options["dry_run"]:
        click.echo(_intent(options, entries))
        return
    cluster = make_cluster(options, entries)
    step = make_step(options, entries)
    if step.device == "cpu":
        from weft.parallel.prediction.cluster import on_cpus

        cluster = on_cpus(cluster)
    if options["record"]:
        from weft.parallel.recording.launching import step_text

        write_output(options["record"], step_text(step))
    from weft.parallel.planning.choice import choose

    choice = choose(step, cluster, allow=options["allow"])
    _report(options, step, cluster, choice)


def _check(options: dict[str, Any]) -> None:
    """Refuse what cannot be planned, before anything is started."""
    given = [name for name in ("script", "model", "step") if options[name] is not None]
    if len(given) > 1:
        raise UsageError(f"a step must come from one place, got {' and '.join(given)}; drop one of them")
    if not given and options["simulate"] is None:
        raise UsageError("weft plan must be given a step, got none; name a script, --model or --step")
    if options["simulate"] is not None:
        if (
            options["hosts"]
            or options["hostfile"]
            or options["script"]
            or options["measure"]
            or options["bench"]
        ):
            raise UsageError(
                "--simulate is for hosts that are not there, got hosts, a script or measurements; drop one"
            )
        if options["gpu"] is None or options["link"] is None:
            raise UsageError(
                "--simulate must come with --gpu and --link, got one less; add --gpu h100 --link 100Gb"
            )
    elif options["plot"] is not None:
        raise UsageError("--plot must come with --simulate, got it alone; add --simulate 64x8")
    if options["batch"] is not None and options["model"] is None and options["simulate"] is None:
        raise UsageError("--batch must come with --model, got it alone; add --model module:factory")
    if options["model"] is not None and ":" in options["model"] and options["batch"] is None:
        raise UsageError("--model must come with --batch, got it alone; add --batch 8x3x32x32")


def _intent(options: dict[str, Any], entries: tuple[HostEntry, ...]) -> str:
    where = f"on {entries[0].name}" if entries else "on this machine"
    source = options["script"] or options["model"] or options["step"] or "7b"
    links = "measured now" if options["measure"] else options["link"] or "as weft check measured them"
    hosts = options["simulate"] or ", ".join(entry.name for entry in entries) or "this machine"
    recorded = "taken from a file" if options["step"] else f"recorded {where}"
    if options["simulate"]:
        recorded = "computed from shapes"
    return f"step: {source}, {recorded}\nhosts: {hosts}\nlinks: {links}"


def make_cluster(options: dict[str, Any], entries: tuple[HostEntry, ...]) -> ClusterFacts:
    """Return the hosts of the plan: simulated, given, or measured."""
    from dataclasses import replace

    from weft.parallel.simulated.constants import accelerator, parse_hosts_by_workers, parse_rate

    racks = options["racks"] or 1
    more: dict[str, Any] = {"racks": racks}
    if options["uplink"]:
        more["uplink_bps"] = parse_rate(options["uplink"])
    if options["memory"]:
        more["device_bytes"] = options["memory"]
    if options["simulate"]:
        from weft.parallel.simulated.constants import simulated_cluster

        hosts, workers = parse_hosts_by_workers(options["simulate"])
        made = simulated_cluster(hosts, workers, options["gpu"], parse_rate(options["link"]), racks=racks)
        return replace(made, **more)
    if options["gpu"]:
        kind = accelerator(options["gpu"])
        more |= {"copy_bps": kind.copy_bps, "memory_bps": kind.memory_bps}
        more.setdefault("device_bytes", kind.memory_bytes)
    names, workers = _alike(entries, options["per_host"])
    if options["link"]:
        from weft.parallel.prediction.cluster import ClusterFacts

        found = ClusterFacts(
            hosts=names,
            workers_per_host=workers,
            card_bps=parse_rate(options["link"]),
            source="given",
            **more,
        )
    else:
        from weft.parallel.recording.sources import measured_cluster

        found = measured_cluster(names, workers, _measured(options, entries), **more)
    if options["bench"]:
        from weft.parallel.recording.sources import with_bench

        found = with_bench(found, options["bench"])
    return found


def _alike(entries: tuple[HostEntry, ...], per_host: int | None) -> tuple[tuple[str, ...], int]:
    """Return the names of the hosts and the workers on each, which must be as many."""
    if not entries:
        return ("localhost",), per_host or 1
    counts = {entry.workers or per_host or 1 for entry in entries}
    if len(counts) > 1:
        text = ", ".join(f"{entry.name}={entry.workers or per_host or 1}" for entry in entries)
        raise UsageError(
            f"hosts must have equally many workers to be planned for, got {text}; give --per-host"
        )
    return tuple(entry.name for entry in entries), counts.pop()


def _measured(options: dict[str, Any], entries: tuple[HostEntry, ...]) -> Any:
    """Measure the links now if that was asked for; None: take what was measured before."""
    if not options["measure"] or len(entries) < 2:
        return None
    from weft.launch import preflight

    report = preflight.check(entries, progress=preflight.progress_on(sys.stderr))
    preflight.require_ok(report)
    return {(link.source, link.target): link for link in report.links}


def make_step(options: dict[str, Any], entries: tuple[HostEntry, ...]) -> RecordedStep:
    """Return the step of the plan: of a file, a model, a script, or computed from a model's size."""
    from dataclasses import replace

    from weft.parallel.recording.sources import read_step, record_factory

    model, passes = options["model"], options["passes"]
    if options["step"]:
        found = read_step(options["step"])
        return replace(found, passes=passes) if passes else found
    if options["simulate"] and (model is None or ":" not in model):
        from weft.parallel.simulated.models import parse_tokens, transformer_step

        sequences, length = parse_tokens(options["batch"] or "1x4096")
        return transformer_step(
            model or "7b", options["gpu"], sequences=sequences, length=length, passes=passes or 1
        )
    if model is not None:
        flops = None
        if options["gpu"]:
            from weft.parallel.simulated.constants import accelerator

            flops = accelerator(options["gpu"]).flops
        if ":" not in model:
            raise UsageError(
                f"--model must be module:factory, got {model}; or add --simulate for a model by its size"
            )
        return record_factory(
            model, options["batch"], passes=passes or 1, flops=flops, device=options["gpu"] or ""
        )
    from weft.parallel.recording.launching import record_script

    if sys.stderr.isatty():
        click.echo(f"weft: recording a few steps of {options['script']}", err=True)
    host, (_, workers) = entries[0] if entries else None, _alike(entries, options["per_host"])
    found = record_script(options["script"], options["arguments"], host, workers)
    return replace(found, passes=passes) if passes else found


def _report(options: dict[str, Any], step: RecordedStep, cluster: ClusterFacts, choice: WayChoice) -> None:
    """Print the table or the data, write the plan and the picture."""
    from weft.parallel.planning.plan_file import make_plan, plan_data
    from weft.parallel.planning.table import choice_data, render_choice

    plan = make_plan(step, cluster, choice, options["allow"])
    points = None
    if options["simulate"]:
        from weft.parallel.simulated.scaling import scaling

        points = scaling(step, cluster, allow=options["allow"])
    if options["as_json"]:
        data = {"best": str(plan.way), "plan": plan_data(plan), "predictions": list(choice_data(choice))}
        if points is not None:
            data["scaling"] = [
                {
                    "hosts": point.hosts,
                    "best": None if point.best is None else str(point.best.way),
                    "step_s": None if point.best is None else point.best.step_s,
                    "computing_share": None if point.best is None else point.best.computing_share,
                }
                for point in points
            ]
        click.echo(json.dumps(data, indent=2))
    else:
        click.echo(render_choice(choice, step, cluster, every=options["every"]))
        if points is not None:
            from weft.parallel.simulated.scaling import render_scaling

            click.echo(f"\n{render_scaling(points)}")
    if options["plot"] and points is not None:
        from weft.parallel.simulated.picture import render_svg

        about = f"{cluster.workers_per_host} {options['gpu']} a host, {options['link']} a card, {step.passes} passes"
        write_output(options["plot"], render_svg(points, f"scaling of {step.name}", about))
    out: Path | None = options["out"] or (None if options["simulate"] else Path(PLAN_FILE))
    if out is not None:
        write_output(out, plan.to_text())
        if not options["as_json"]:
            click.echo(f"plan: {out}")
