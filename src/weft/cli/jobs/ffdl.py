"""`weft ffdl`: the words of FfDL's command line, for scripts that have them, against the service's FfDL door.

The service is the one that every verb talks to, or that of the variables DLAAS_URL, DLAAS_USERNAME and DLAAS_PASSWORD.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

import weft
from weft.cli.jobs.options import json_option, missing_extra, open_client, url_option
from weft.cli.jobs.printing import plain
from weft.cli.paths import ExistingFile, OutputFile
from weft.cli.values import Text, Whole
from weft.errors import ConnectError, UsageError
from weft.text import format_table, plural

if TYPE_CHECKING:
    import httpx

TRAINING = Text("the number of a training", "training-7", like=r"(training-)?[0-9]{1,16}")
CODE = Text("a zip or a folder", "model.zip", like=r"[^\x00]{1,4096}")
SINCE = Text("a time, milliseconds since 1970, or -n lines", "2026-01-01T00:00:00Z", like=r"[!-~]{1,60}")
LONGEST_S = 600.0
EXAMPLE = """name: example
description: counts to three
learners: 1
cpus: 1
gpus: 0
memory: 1GiB
framework: {name: pytorch, version: "2", command: python3 train.py}
"""


@click.group("ffdl")
def command() -> None:
    """Train as FfDL's command line did: the same words, manifests and answers."""


@command.command("init")
@click.argument("manifest", type=OutputFile(), default="manifest.yml")
def init(manifest: Path) -> None:
    """Write a manifest to begin with; a file that is there stays."""
    if manifest.exists():
        raise UsageError(f"a manifest must be new, got {manifest} that is there; name another")
    manifest.write_text(EXAMPLE)
    click.echo(f"wrote {manifest}; edit it, then: weft ffdl train {manifest} FOLDER")


@command.command("train")
@click.argument("manifest", type=ExistingFile())
@click.argument("code", type=CODE)
@url_option
@json_option
def train(manifest: Path, code: str, url: str | None, as_json: bool) -> None:
    """Start a training from MANIFEST and CODE, a zip or a folder."""
    with _door(url) as door, _zipped(Path(code)) as archive, manifest.open("rb") as text:
        files = {"manifest": ("manifest.yml", text), "model_definition": ("model.zip", archive)}
        made = _ask(door, "POST", "/v1/models", files=files)
    for warning in made.get("warnings", ()):
        click.echo(f"weft: {plain(str(warning))}", err=True)
    click.echo(json.dumps(made) if as_json else f"Model ID: {made['model_id']}")


@command.command("list")
@url_option
@json_option
def list_trainings(url: str | None, as_json: bool) -> None:
    """Print your trainings."""
    with _door(url) as door:
        found = _ask(door, "GET", "/v1/models")["models"]
    if as_json:
        click.echo(json.dumps(found))
        return
    rows = [("id", "name", "framework", "status", "submitted", "completed")]
    for one in found:
        status = one["training"]["training_status"]
        shown = (one["name"], one["framework"]["name"], status["status"])
        rows.append(
            (
                one["model_id"],
                *(plain(str(word)) for word in shown),
                str(status.get("submitted") or "N/A"),
                str(status.get("completed") or "N/A"),
            )
        )
    click.echo("\n".join(format_table(rows, left=rows[0])))
    click.echo(f"{plural(len(found), 'record')} found.", err=True)


@command.command("show")
@click.argument("training", type=TRAINING)
@url_option
@json_option
def show(training: str, url: str | None, as_json: bool) -> None:
    """Print a training: what it runs, and how far it is."""
    with _door(url) as door:
        found = _ask(door, "GET", _path(training))
    if as_json:
        click.echo(json.dumps(found))
        return
    run, status = found["training"], found["training"]["training_status"]
    rows = [
        ("Id", found["model_id"]), ("Name", found["name"]), ("Description", found.get("description") or ""),
        ("Framework", f"{found['framework']['name']}:{found['framework']['version']}"),
        ("Command", run["command"]), ("Learners", run["learners"]), ("CPUs", run["cpus"]), ("GPUs", run["gpus"]),
        ("Memory", f"{run['memory']} {run['memory_unit']}"), ("Status", status["status"]),
        ("Message", status.get("status_message") or ""),
    ]  # fmt: skip
    click.echo("\n".join(f"{name + ':':13}{plain(str(value))}" for name, value in rows))


@command.command("delete")
@click.argument("training", type=TRAINING)
@url_option
@json_option
def delete(training: str, url: str | None, as_json: bool) -> None:
    """Halt a training if it runs, and remove it."""
    with _door(url) as door:
        gone = _ask(door, "DELETE", _path(training))
    click.echo(json.dumps(gone) if as_json else f"deleted {gone['model_id']}")


@command.command("halt")
@click.argument("training", type=TRAINING)
@url_option
@json_option
def halt(training: str, url: str | None, as_json: bool) -> None:
    """Halt a training; what it has written stays."""
    with _door(url) as door:
        halted = _ask(door, "PATCH", _path(training), json={"status": "halt"})
    click.echo(json.dumps(halted) if as_json else f"halting {halted['model_id']}")


@command.command("download")
@click.argument("training", type=TRAINING)
@click.option("--definition", "what", flag_value="definition", help="The code that was sent.")
@click.option(
    "--trainedmodel", "what", flag_value="trained_model", default=True, help="The results (default)."
)
@click.option(
    "--filename", type=OutputFile(), help="Write there in place of standard output or a file of that name."
)
@url_option
def download(training: str, what: str, filename: Path | None, url: str | None) -> None:
    """Fetch the code or the results of a training, as a zip."""
    target = filename or Path(f"{_number(training)}-{what}.zip")
    with _door(url) as door, door.stream("GET", f"{_path(training)}/{what}") as answer:
        _check(answer)
        with target.open("wb") as file:
            for part in answer.iter_bytes():
                file.write(part)
    click.echo(f"wrote {target}")


@command.command("logs")
@click.argument("training", type=TRAINING)
@click.option("--follow", is_flag=True, help="Until the training has ended.")
@click.option("--metrics", is_flag=True, help="Metrics in place of output.")
@url_option
def logs(training: str, follow: bool, metrics: bool, url: str | None) -> None:
    """Print the output of a training, or its metrics as JSON lines."""
    path = f"{_path(training)}/{'metrics' if metrics else 'logs'}"
    query = {"follow": "true"} if follow else {}
    with _door(url) as door, door.stream("GET", path, params=query, timeout=None) as answer:
        _check(answer)
        for text in answer.iter_text():
            click.echo(text, nl=False)


def _pages(function: Any) -> Any:
    """Add the options of a page."""
    for option in (
        click.option("--since", type=SINCE, help="From this time on."),
        click.option(
            "--pos", type=Whole(-10_000_000, 10_000_000, example=0), default=0, help="From this one on."
        ),
        click.option("--pagesize", type=Whole(1, 10_000, example=10), default=10, show_default=True),
    ):
        function = option(function)
    return function


@command.command("loglines")
@click.argument("training", type=TRAINING)
@_pages
@url_option
@json_option
def log_lines(
    training: str, since: str | None, pos: int, pagesize: int, url: str | None, as_json: bool
) -> None:
    """Print a page of a training's output."""
    for one in _records(training, "loglines", since, pos, pagesize, url):
        click.echo(json.dumps(one) if as_json else plain(one["line"]))


@command.command("emetrics")
@click.argument("training", type=TRAINING)
@_pages
@url_option
@json_option
def metrics(
    training: str, since: str | None, pos: int, pagesize: int, url: str | None, as_json: bool
) -> None:
    """Print a page of a training's metrics."""
    for one in _records(training, "emetrics", since, pos, pagesize, url):
        if as_json:
            click.echo(json.dumps(one))
            continue
        values = " ".join(f"{plain(name)}={value['value']}" for name, value in one["values"].items())
        steps = " ".join(f"{plain(name)}={value['value']}" for name, value in one["etimes"].items())
        click.echo(f"{plain(one['grouplabel'] or '-')}: {steps} {values}")


@command.command("version")
def version() -> None:
    """Print the version of this command line."""
    click.echo(f"weft {weft.__version__}, speaking FfDL's REST v1")


def _records(
    training: str, kind: str, since: str | None, pos: int, pagesize: int, url: str | None
) -> list[dict[str, Any]]:
    query = {"pos": str(pos), "pagesize": str(pagesize), **({"since_time": since} if since else {})}
    with _door(url) as door:
        found = _ask(door, "GET", f"/v1/logs/{_number(training)}/{kind}", params=query)["models"]
    return list(found)


def _number(training: str) -> str:
    return f"training-{training.removeprefix('training-')}"


def _path(training: str) -> str:
    return f"/v1/models/{_number(training)}"


@contextmanager
def _door(url: str | None) -> Iterator[httpx.Client]:
    """Yield a client of the door: by FfDL's variables, or of the service that every verb talks to."""
    try:
        import httpx
    except ModuleNotFoundError as error:
        raise missing_extra(error) from None
    address = os.environ.get("DLAAS_URL")
    try:
        if url is None and address:
            login = (os.environ.get("DLAAS_USERNAME", ""), os.environ.get("DLAAS_PASSWORD", ""))
            root = address.rstrip("/").removesuffix("/v1")
            with httpx.Client(base_url=root, auth=login, timeout=LONGEST_S) as client:
                yield client
            return
        with open_client(url) as known:
            yield known.connection.http
    except httpx.HTTPError as error:
        reason = str(error) or type(error).__name__
        raise ConnectError(
            f"the service must answer, got {reason}; check DLAAS_URL, or start weft up"
        ) from None


def _ask(door: httpx.Client, method: str, path: str, **given: Any) -> dict[str, Any]:
    answer = door.request(method, path, timeout=LONGEST_S, **given)
    _check(answer)
    found: dict[str, Any] = answer.json()
    return found


def _check(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    answer.read()
    try:
        reason = str(answer.json().get("description") or answer.json().get("error"))
    except (ValueError, AttributeError):
        reason = answer.text[:200]
    raise UsageError(f"the service must take the request, got {answer.status_code}: {plain(reason)}")


@contextmanager
def _zipped(code: Path) -> Iterator[IO[bytes]]:
    """Yield a zip: the file that was named, or one of the files of a folder."""
    if code.is_file():
        with code.open("rb") as file:
            yield file
        return
    if not code.is_dir():
        raise UsageError(f"CODE must be a zip or a folder, got {code}; name one that is there")
    with tempfile.TemporaryFile() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(code.rglob("*")):
                if path.is_file() and not path.is_symlink():
                    archive.write(path, path.relative_to(code).as_posix())
        file.seek(0)
        yield file
