"""`weft auto`: the best model of a table that some minutes can find, with no code."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import click

from weft.cli.jobs.options import open_client, print_data, url_option
from weft.cli.paths import ExistingFile, OutputFolder
from weft.cli.values import NAME, Real, Text, Whole
from weft.errors import UsageError
from weft.text import format_table

if TYPE_CHECKING:
    from weft.auto.model import AutoModel
    from weft.auto.running import AutoProgress

SHOWN = 12  # models of the live leaderboard
SHOWN_COLUMNS = 60
UPLOAD_S = 600.0  # that a table may take to be sent
_COLUMN = Text("the name of a column", "COLUMN", like=r"[^\x00-\x1f]+")


@click.command("auto")
@click.argument("table")
@click.option("--target", required=True, type=_COLUMN, metavar="COLUMN", help="The column to predict.")
@click.option(
    "--minutes",
    type=Real(above=0, most=7 * 24 * 60, example=10),
    default=10.0,
    show_default=True,
    help="How long to look for better models.",
)
@click.option(
    "--time", type=_COLUMN, metavar="COLUMN", help="Validate on rows that are later by this column."
)
@click.option(
    "--group", type=_COLUMN, metavar="COLUMN", help="Keep rows with the same value on one side of a split."
)
@click.option("--task", type=NAME, default="auto", help="classes or numbers; else found from the target.")
@click.option("--metric", type=NAME, help="log_loss, auc or accuracy of classes; rmse or mae of numbers.")
@click.option(
    "--model", "models", type=NAME, multiple=True, help="A family to try; may be repeated. Else all."
)
@click.option(
    "--drop", type=_COLUMN, multiple=True, metavar="COLUMN", help="Leave a column out; may be repeated."
)
@click.option(
    "--fairness",
    type=_COLUMN,
    multiple=True,
    metavar="COLUMN",
    help="Compare outcomes of this column's groups.",
)
@click.option(
    "--trials", type=Whole(1, 100_000, example=50), help="At most so many trials, if time allows them."
)
@click.option(
    "--seed", type=Whole(0, 2**31 - 1, example=7), default=0, show_default=True, help="Of all choices."
)
@click.option(
    "--out",
    type=OutputFolder(),
    metavar="FOLDER",
    help="Keep the run there; auto-TABLE unless another is named.",
)
@click.option(
    "--predict",
    type=ExistingFile("a table"),
    metavar="FILE",
    help="Write predictions of this table's rows, too, as predictions.csv.",
)
@click.option("--pdf", is_flag=True, help="Write report.pdf, too; needs chromium.")
@url_option
@click.option("--json", "as_json", is_flag=True, help="Print the result as data.")
def command(
    table: str,
    out: Path | None,
    predict: Path | None,
    pdf: bool,
    url: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the best model of TABLE: a .csv, .parquet, .arrow or .feather file.

    Columns are typed, leaks and drift warned of, models tuned and blended; --out holds the model, its ONNX graph and a
    report. The same command again goes on where a killed run was. With --url it is a job of that service, and TABLE may
    be a data set of the service, NAME or NAME@VERSION.
    """
    from weft.auto.config import AutoConfig
    from weft.auto.results import write_predictions, write_results
    from weft.auto.running import run

    config = AutoConfig(**options)
    if url is not None:
        if out is not None or pdf or predict is not None:
            raise UsageError(
                "--url must come without --out, --pdf and --predict: the service keeps the results of a job"
            )
        begin_on_service(url, table, options, as_json)
        return
    folder = out if out is not None else Path(f"auto-{Path(table).stem}")
    screen = ProgressScreen()
    model = run(table, config, folder, screen.show)
    screen.close()
    notes = [*model.notes, *write_results(model, folder, table, pdf=pdf)]
    if predict is not None:
        notes.append(write_predictions(model, folder, predict))
    if as_json:
        click.echo(json.dumps({**model.data(), "folder": str(folder), "notes": notes}))
        return
    _print(model, folder, notes)


def begin_on_service(url: str, table: str, options: dict[str, Any], as_json: bool) -> None:
    """Begin a run as a job of a service: of a file here, which is sent, or of a data set that it has."""
    from weft.auto.reading.files import FILES
    from weft.jobs.api.types.auto import AutoRunView, TableLook

    body = {name: value for name, value in options.items() if value not in (None, ())}
    path = Path(table)
    with open_client(url) as client:
        if path.suffix.lower() in FILES:
            if not path.is_file():
                raise UsageError(f"TABLE must be a file, got nothing at {table}; check the path")
            sent = f"/auto/tables?{urlencode({'name': path.name})}"
            look = client.connection.send_file(sent, path, TableLook, timeout_s=UPLOAD_S)
            body |= {"upload": look.upload, "file": look.file}
        else:
            body["dataset"] = table
        begun = client.connection.send("POST", "/auto/runs", AutoRunView, body)
        page = f"{client.url}/tables/{begun.job.id}"
    if as_json:
        print_data(begun)
        return
    click.echo(f"job {begun.job.id} looks for a model of {begun.target} in {begun.table}")
    click.echo(f"{page} shows it; weft logs -f {begun.job.id} --url {url}")


class ProgressScreen:
    """Standard error of a run that goes on: a live leaderboard at a terminal, else lines."""

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self.lines = 0
        self.told = False

    def show(self, progress: AutoProgress) -> None:
        """Show how far a run is; columns and warnings come once, before the first model."""
        if not self.told:
            self.told = True
            _echo(_columns_table(progress))
            _echo([f"warning: {finding.sentence}" for finding in progress.findings])
        head = f"{progress.spent_s:6.0f} s of {progress.budget_s:.0f} s: {progress.doing}"
        if not self.live:
            best = f"; best {progress.board[0].name} {progress.board[0].score:.5g}" if progress.board else ""
            _echo([head + best])
            return
        self._redraw([head, *_board_lines(progress.board, SHOWN)])

    def _redraw(self, lines: list[str]) -> None:
        width = shutil.get_terminal_size().columns - 1
        up = f"\x1b[{self.lines}F\x1b[J" if self.lines else ""
        click.echo(up + "\n".join(line[:width] for line in lines), err=True)
        self.lines = len(lines)

    def close(self) -> None:
        """Remove the live leaderboard, which the result replaces."""
        if self.live and self.lines:
            click.echo(f"\x1b[{self.lines}F\x1b[J", err=True, nl=False)


def _echo(lines: list[str]) -> None:
    for line in lines:
        click.echo(line, err=True)


def _board_lines(board: Any, most: int | None = None) -> list[str]:
    from weft.auto.model import board_table

    return format_table(board_table(board, most), left=("model", "parameters"))


def _columns_table(progress: AutoProgress) -> list[str]:
    rows = [["column", "role", "distinct", "missing", "found from"]]
    rows += [
        [role.name, role.role, str(role.distinct), f"{role.missing_share:.1%}", role.why]
        for role in progress.columns[:SHOWN_COLUMNS]
    ]
    shown = format_table(rows, left=("column", "role", "found from"))
    others = Counter(role.role for role in progress.columns[SHOWN_COLUMNS:])
    text = ", ".join(f"{count:,} {role}" for role, count in others.most_common())
    return [*shown, *([f"and {others.total():,} more: {text}; all are in the report"] if others else [])]


def _print(model: AutoModel, folder: Path, notes: list[str]) -> None:
    for line in _board_lines(model.leaderboard, SHOWN):
        click.echo(line)
    click.echo(
        f"{model.task.metric} {model.score:.5g} on held-out rows ({model.validation}); folds alone chose the models"
    )
    for note in notes:
        click.echo(note)
    click.echo(f"kept in {folder}")
