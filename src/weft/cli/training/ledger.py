"""`weft ledger`: whether an elastic run consumed every sample exactly once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from weft.cli.values import COUNT_OR_NONE
from weft.errors import UsageError

if TYPE_CHECKING:
    from weft.elastic.history.records import Ledger


@click.command("ledger")
@click.argument("run", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print it as data.")
@click.option(
    "--sample", type=COUNT_OR_NONE, metavar="N", help="Tell which steps and workers consumed this sample."
)
@click.option("--epoch", type=COUNT_OR_NONE, metavar="E", help="Look at this epoch only.")
@click.pass_context
def command(ctx: click.Context, run: str, as_json: bool, sample: int | None, epoch: int | None) -> None:
    """Check that every sample was consumed exactly once per epoch: exit code 0 if so, 1 if not.

    RUN is a run directory, or `latest`. It holds the ledgers of all hosts, or of those that could be collected.
    """
    from weft.elastic.history.records import read_ledger
    from weft.launch.control.rundir import find_run

    ledger = read_ledger(find_run(run))
    epochs = sorted({record.epoch for record in ledger.records})
    if epoch is not None and epoch not in epochs:
        known = f"{epochs[0]} to {epochs[-1]}" if epochs else "none"
        raise UsageError(f"--epoch must be one that has steps, got {epoch}; there are {known}")
    fine = _judge(ledger, as_json, epoch) if sample is None else _trace(ledger, as_json, sample, epoch)
    ctx.exit(0 if fine else 1)


def _judge(ledger: Ledger, as_json: bool, epoch: int | None) -> bool:
    from weft.elastic.history.ledger import audit
    from weft.elastic.history.ledger_table import render_report

    report = audit(ledger)
    if epoch is not None:
        report = report.only(epoch)
    click.echo(json.dumps(report.to_json(), indent=2) if as_json else render_report(report))
    return report.exact


def _trace(ledger: Ledger, as_json: bool, sample: int, epoch: int | None) -> bool:
    from weft.elastic.history.ledger_table import render_uses
    from weft.elastic.history.samples import uses

    found = uses(ledger, sample, epoch)
    data = {"sample": sample, "uses": [use.to_json() for use in found]}
    click.echo(json.dumps(data, indent=2) if as_json else render_uses(sample, found, epoch))
    return bool(found)
